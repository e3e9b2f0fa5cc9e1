// Arguments in, arrays out. Every check names the argument, because "incompatible function
// arguments" helps nobody; so arrays arrive untyped and are checked here, never cast or copied.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace squall {

namespace nb = nanobind;

using Input = nb::ndarray<nb::ro>;  // read only; an absent optional array is !is_valid()
using Buffer = nb::ndarray<>;       // changed in place

template <class... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

template <class... Parts>
[[noreturn]] void value_error(const Parts&... parts) {
    throw nb::value_error(text(parts...).c_str());
}

template <class... Parts>
[[noreturn]] void index_error(const Parts&... parts) {
    throw nb::index_error(text(parts...).c_str());
}

template <class... Parts>
[[noreturn]] void type_error(const Parts&... parts) {
    throw nb::type_error(text(parts...).c_str());
}

inline std::string dtype_name(nb::dlpack::dtype type) {
    static constexpr const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    const char* kind = type.code < 7 ? kinds[type.code] : "other";
    return text(kind, static_cast<int>(type.bits));
}

template <class T, class Array>
void check_type(const Array& array, const char* name, size_t ndim) {
    if (!array.is_valid()) type_error(name, ": an array is needed, not None");
    if (array.dtype() != nb::dtype<T>())
        type_error(name, ": dtype is ", dtype_name(array.dtype()), ", ", dtype_name(nb::dtype<T>()),
                   " is needed (nothing is cast here)");
    if (array.ndim() != ndim) value_error(name, ": has ", array.ndim(), " dimension(s), ", ndim, " needed");
    if (array.device_type() != nb::device::cpu::value) value_error(name, ": is not in the CPU's memory");
    if (reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) != 0)
        value_error(name, ": its memory is not aligned to its dtype");
}

template <class Array>
void check_contiguous(const Array& array, const char* name) {
    if (array.size() == 0) return;
    int64_t stride = 1;
    for (size_t axis = array.ndim(); axis-- > 0;) {
        if (array.shape(axis) != 1 && array.stride(axis) != stride)
            value_error(name, ": is not C-contiguous (nothing is copied here)");
        stride *= static_cast<int64_t>(array.shape(axis));
    }
}

// A contiguous read-only vector.
template <class T>
std::span<const T> vector(const Input& array, const char* name) {
    check_type<T>(array, name, 1);
    check_contiguous(array, name);
    return {static_cast<const T*>(array.data()), array.size()};
}

template <class T>
std::span<const T> vector(const Input& array, const char* name, size_t length) {
    const auto result = vector<T>(array, name);
    if (result.size() != length) value_error(name, ": has length ", result.size(), ", ", length, " needed");
    return result;
}

// A contiguous vector to be written to.
template <class T>
std::span<T> vector(const Buffer& array, const char* name, size_t length) {
    check_type<T>(array, name, 1);
    check_contiguous(array, name);
    if (array.size() != length) value_error(name, ": has length ", array.size(), ", ", length, " needed");
    return {static_cast<T*>(array.data()), array.size()};
}

// Null when the argument is None; otherwise `length` elements.
template <class T>
const T* optional_vector(const Input& array, const char* name, size_t length) {
    return array.is_valid() ? vector<T>(array, name, length).data() : nullptr;
}

// A read-only vector whose elements may lie apart, such as a column of a table.
template <class T>
struct Strided {
    const T* data;
    int64_t stride;
    size_t size;
    const T& operator[](size_t i) const { return data[static_cast<int64_t>(i) * stride]; }
};

template <class T>
Strided<T> strided_vector(const Input& array, const char* name, size_t length) {
    check_type<T>(array, name, 1);
    if (array.size() != length) value_error(name, ": has length ", array.size(), ", ", length, " needed");
    return {static_cast<const T*>(array.data()), length > 1 ? array.stride(0) : 1, length};
}

template <class T>
struct Matrix {
    T* data;
    int64_t rows, columns;
    T* row(int64_t i) const { return data + i * columns; }
};

template <class T>
Matrix<const T> matrix(const Input& array, const char* name) {
    check_type<T>(array, name, 2);
    check_contiguous(array, name);
    return {static_cast<const T*>(array.data()), static_cast<int64_t>(array.shape(0)),
            static_cast<int64_t>(array.shape(1))};
}

template <class T>
Matrix<T> matrix(const Buffer& array, const char* name) {
    check_type<T>(array, name, 2);
    check_contiguous(array, name);
    return {static_cast<T*>(array.data()), static_cast<int64_t>(array.shape(0)),
            static_cast<int64_t>(array.shape(1))};
}

// A one-element buffer that other processes may share.
inline int64_t* counter(const Buffer& array, const char* name) {
    check_type<int64_t>(array, name, 1);
    if (array.size() != 1) value_error(name, ": has length ", array.size(), ", 1 needed");
    return static_cast<int64_t*>(array.data());
}

// bytes or a uint8 array.
inline std::string_view byte_view(const Input& array, const char* name) {
    const auto bytes = vector<uint8_t>(array, name);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void check_setting(double value, const char* name) {
    if (!std::isfinite(value) || value < 0)
        value_error(name, ": is ", value, ", a finite number >= 0 needed");
}

// Memory for a result, not zeroed: the kernel writes every element.
template <class T>
struct Owned {
    explicit Owned(size_t n) : data(std::make_unique_for_overwrite<T[]>(n)), size(n) {}
    T& operator[](size_t i) { return data[i]; }
    std::unique_ptr<T[]> data;
    size_t size;
};

template <class T>
nb::object to_numpy(std::unique_ptr<T[]> data, std::initializer_list<size_t> shape) {
    T* raw = data.get();
    nb::capsule owner(raw, [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
    data.release();
    return nb::cast(nb::ndarray<nb::numpy, T>(raw, shape, owner));
}

template <class T>
nb::object to_numpy(Owned<T>&& owned) {
    return to_numpy(std::move(owned.data), {owned.size});
}

template <class T>
nb::object to_numpy(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), {kept->size()}, owner));
}

template <class T>
nb::object to_numpy(std::span<const T> values) {
    Owned<T> copy(values.size());
    std::copy(values.begin(), values.end(), copy.data.get());
    return to_numpy(std::move(copy));
}

}  // namespace squall
