// Who may update a table: each slot's newest attempt, its last sequence number, and its progress.
#pragma once

#include <atomic>

#include "arrays.hpp"

namespace squall {

// A word for each slot, and last the driver's, whose slot is -1. Other processes may share them.
class SlotWords {
  public:
    SlotWords(const Buffer& array, const char* name) : owner_(array) {
        check_type<int64_t>(array, name, 1);
        if (array.size() == 0) value_error(name, ": is empty, a word for each slot and the driver needed");
        data_ = static_cast<int64_t*>(array.data());
        stride_ = array.size() > 1 ? array.stride(0) : 1;
        size_ = static_cast<int64_t>(array.size());
    }

    int64_t size() const { return size_; }
    bool has(int64_t slot) const { return slot >= -1 && slot < size_ - 1; }
    int64_t get(int64_t slot) const { return word(slot).load(std::memory_order_relaxed); }
    void set(int64_t slot, int64_t value) const { word(slot).store(value, std::memory_order_relaxed); }
    void raise(int64_t slot, int64_t value) const {
        if (value > get(slot)) set(slot, value);
    }

  private:
    std::atomic_ref<int64_t> word(int64_t slot) const {
        return std::atomic_ref<int64_t>(data_[(slot < 0 ? size_ - 1 : slot) * stride_]);
    }

    Buffer owner_;
    int64_t *data_, stride_, size_;
};

class Fence {
  public:
    enum Admission : int { admitted = 0, no_slot = 1, stale = 2 };

    Fence(const Buffer& attempts, const Buffer& sequences, const Buffer& progress)
        : attempts_(attempts, "attempts"),
          sequences_(sequences, "sequences"),
          progress_(progress, "progress") {
        if (sequences_.size() != attempts_.size() || progress_.size() != attempts_.size())
            value_error("attempts, sequences, progress: have ", attempts_.size(), ", ", sequences_.size(),
                        ", ", progress_.size(), " words, equally many needed");
    }

    // A newer attempt than any before fences those off.
    Admission admit(int64_t slot, int64_t attempt) const {
        if (!attempts_.has(slot)) return no_slot;
        if (attempt < attempts_.get(slot)) return stale;
        attempts_.raise(slot, attempt);
        return admitted;
    }

    int64_t newest(int64_t slot) const { return attempts_.get(checked(slot)); }
    int64_t last(int64_t slot) const { return sequences_.get(checked(slot)); }
    bool is_repeat(int64_t slot, int64_t sequence) const { return sequence <= last(slot); }
    void set_last(int64_t slot, int64_t sequence) const { sequences_.set(checked(slot), sequence); }

    // Of a repeat too: its first sender may have died before it could.
    void count(int64_t slot, int64_t minibatches) const { progress_.raise(checked(slot), minibatches); }

  private:
    int64_t checked(int64_t slot) const {
        if (!attempts_.has(slot)) index_error("slot: ", slot, " is not in [-1, ", attempts_.size() - 1, ")");
        return slot;
    }

    SlotWords attempts_, sequences_, progress_;
};

}  // namespace squall
