// Arrays that grow at their end and are handed out without a copy.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace squall {

// Memory as it is. Much of it comes in huge pages where the system has them: it clears small ones one by one
// as they are touched.
template <class T>
std::shared_ptr<T[]> new_memory(size_t size) {
    constexpr size_t page = size_t{1} << 21;
    const size_t n_bytes = (size * sizeof(T) + page - 1) & ~(page - 1);
    if (n_bytes < 2 * page) return std::make_shared_for_overwrite<T[]>(size);
    void* const memory = std::aligned_alloc(page, n_bytes);
    if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(memory, n_bytes, MADV_HUGEPAGE);  // advice: where it is refused nothing else changes
#endif
    return std::shared_ptr<T[]>(static_cast<T*>(memory), [](T* at) { std::free(at); });
}

// New memory is left as it is. Room is made beforehand, so that `push` need not look for it.
template <class T>
class Growing {
  public:
    // Room for so many more. Once it is empty, memory that somebody still reads is left to them.
    void reserve(size_t more) {
        if (size_ == 0 && is_shared()) data_ = new_memory<T>(capacity_);
        if (capacity_ - size_ >= more) return;
        const size_t wanted = std::max(size_ + more, 2 * capacity_);
        auto larger = new_memory<T>(wanted);
        std::copy_n(data_.get(), size_, larger.get());
        data_ = std::move(larger);
        capacity_ = wanted;
    }

    void push(T value) { data_[static_cast<std::ptrdiff_t>(size_++)] = value; }
    // Where the next goes; and where it goes once some were written there.
    T* end() { return data_.get() + size_; }
    void grow_to(const T* end) { size_ = static_cast<size_t>(end - data_.get()); }

    size_t size() const { return size_; }
    void resize_down(size_t size) { size_ = std::min(size, size_); }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    T& operator[](size_t i) { return data_[static_cast<std::ptrdiff_t>(i)]; }

    // The memory itself; what it holds stays as it is for as long as this is kept, if all is forgotten first.
    std::shared_ptr<T[]> shared() const { return data_; }

  private:
    bool is_shared() const {
        if (data_.use_count() > 1) return true;
        std::atomic_thread_fence(std::memory_order_acquire);  // others have read it before it is written to
        return false;
    }

    std::shared_ptr<T[]> data_;
    size_t size_ = 0, capacity_ = 0;
};

}  // namespace squall
