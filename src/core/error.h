#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::core {

/// Exit codes of every program (docs/design.md section 5).
enum class ExitCode : int { success = 0, run_failure = 1, user_error = 2, stopped_after_save = 75 };

/// Base of everything Tessera throws on purpose. what() is one line: what, where, the numbers that disagree, what to
/// do.
class Error : public std::runtime_error {
public:
    /// Control characters, which a file name, a key or another library's words may hold, become spaces.
    explicit Error(std::string_view what);
    virtual ExitCode exit_code() const { return ExitCode::run_failure; }
};

/// A mistake the user can mend: exit code 2.
class UserError : public Error {
public:
    using Error::Error;
    ExitCode exit_code() const override { return ExitCode::user_error; }
};

/// The command line: an unknown option, a missing argument, a value out of range.
class UsageError : public UserError {
public:
    using UserError::UserError;
};

/// The config file: unknown, missing, mistyped or contradictory keys.
class ConfigError : public UserError {
public:
    using UserError::UserError;
};

/// Training data, tokenizer or text: damaged, truncated, of another type, too short.
class DataError : public UserError {
public:
    using UserError::UserError;
};

/// A checkpoint that is absent, incomplete, damaged or of another model.
class CheckpointError : public UserError {
public:
    using UserError::UserError;
};

/// Shapes or dtypes of an operation's operands that do not fit together.
class ShapeError : public UserError {
public:
    using UserError::UserError;
};

/// The environment said no: a system or library call failed (call, code, where).
class EnvironmentError : public Error {
public:
    using Error::Error;
};

/// The run itself went wrong: a non-finite loss, a loss scale at its floor.
class RunError : public Error {
public:
    using Error::Error;
};

/// Throws E with a formatted message.
template <typename E, typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
    throw E(fmt::format(format, std::forward<Args>(args)...));
}

/// An invariant that no user input can reach; aborts with the expression and the place.
[[noreturn]] void invariant_failed(const char* expression, const char* file, int line);

}  // namespace tessera::core

#define TESSERA_INVARIANT(expression) \
    ((expression) ? static_cast<void>(0) : ::tessera::core::invariant_failed(#expression, __FILE__, __LINE__))
