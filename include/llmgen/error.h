// What the library throws.
#pragma once

#include <stdexcept>
#include <string>

namespace llmgen {

/// A fault in what the user gave (file, prompt, flag) or in the device. what() is one line of printable
/// UTF-8: what is wrong, where, and what to do about it.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// A parameter that can't be right whatever the model: the command line answers with exit code 2, a server
/// with 400.
class UsageError : public Error {
public:
    using Error::Error;
};

}  // namespace llmgen
