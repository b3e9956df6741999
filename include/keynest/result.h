// Errors as values. The library never prints, never exits and never aborts on input.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace keynest {

/// What kind of failure this is; the message says what was given, what is allowed and what to do.
enum class ErrorCode {
  kInvalidArgument,  ///< a value the caller chose is not allowed
  kInvalidFile,      ///< a file is missing, damaged or not what it should be
  kUnsupported,      ///< well-formed, but not something keynest can do
  kOutOfMemory,      ///< the page pool, or the machine, cannot hold it
  kNonFinite,        ///< NaN or infinity where a number is needed
  kRefused,          ///< the state of the session does not allow it (e.g. rollback past an eviction)
  kCancelled,        ///< stopped by the caller
  kIo,               ///< reading or writing failed
  kInternal,         ///< a bug in keynest
};

/// An error value.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

/// Either a value or an Error. Must be looked at.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return assert(ok()), std::get<0>(state_); }
  const T& value() const& { return assert(ok()), std::get<0>(state_); }
  T&& value() && { return assert(ok()), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return assert(!ok()), std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const { return assert(!ok_), error_; }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

inline Error invalid_argument(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

}  // namespace keynest

/// Returns the error of a Status or Result expression to the caller, if it is one.
#define KEYNEST_TRY(expression)                                                             \
  do {                                                                                      \
    if (auto keynest_status = (expression); !keynest_status) return keynest_status.error(); \
  } while (false)
