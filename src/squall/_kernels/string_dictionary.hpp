// The strings of one column, shared by threads that take turns.
#pragma once

#include <mutex>

#include "strings.hpp"

namespace squall {

struct StringDictionary {
    Strings strings;
    std::mutex mutex;

    // A thread waiting here must not hold the interpreter: the owner may need it to finish.
    std::unique_lock<std::mutex> locked() {
        nb::gil_scoped_release release;
        return std::unique_lock(mutex);
    }
};

}  // namespace squall
