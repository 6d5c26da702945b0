// Integers of any size, as Python's: what a template's arithmetic turns to where 64 bits no longer hold the
// result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llmgen::jinja {

class BigInt {
public:
    BigInt() = default;
    explicit BigInt(std::int64_t value);
    /// Digits of `base` (2 to 36), no sign, no separators.
    static BigInt parse(std::string_view digits, int base);
    /// The integer part of a finite value.
    static BigInt from_double(double value);

    bool negative() const { return negative_; }
    bool zero() const { return limbs_.empty(); }
    std::size_t bits() const;
    /// The value where 64 bits hold it.
    std::optional<std::int64_t> to_int64() const;
    /// Nearest double, ties to even; infinite where it is out of range.
    double to_double() const;
    std::string to_string(int base = 10) const;

    friend BigInt operator+(const BigInt& a, const BigInt& b);
    friend BigInt operator-(const BigInt& a, const BigInt& b);
    friend BigInt operator*(const BigInt& a, const BigInt& b);
    BigInt operator-() const;
    /// Python's // and %: the quotient rounds towards minus infinity. `b` is not zero.
    static void divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder);
    static int compare(const BigInt& a, const BigInt& b);

private:
    static int compare_magnitude(const BigInt& a, const BigInt& b);
    static BigInt add_magnitude(const BigInt& a, const BigInt& b);
    static BigInt subtract_magnitude(const BigInt& a, const BigInt& b);
    std::uint32_t divide_small(std::uint32_t divisor);
    void trim();
    std::vector<std::uint32_t> limbs_;  // least significant first, no zeros at the end
    bool negative_ = false;
};

}  // namespace llmgen::jinja
