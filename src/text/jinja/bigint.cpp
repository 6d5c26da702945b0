#include "text/jinja/bigint.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace llmgen::jinja {

BigInt::BigInt(std::int64_t value) : negative_(value < 0) {
    std::uint64_t m = negative_ ? 0 - std::uint64_t(value) : std::uint64_t(value);
    for (; m; m >>= 32) limbs_.push_back(std::uint32_t(m));
}

void BigInt::trim() {
    while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
    if (limbs_.empty()) negative_ = false;
}

BigInt BigInt::parse(std::string_view digits, int base) {
    BigInt out;
    for (const char c : digits) {
        std::uint64_t carry = std::uint64_t(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        for (std::uint32_t& limb : out.limbs_) {
            carry += std::uint64_t(limb) * std::uint64_t(base);
            limb = std::uint32_t(carry);
            carry >>= 32;
        }
        if (carry) out.limbs_.push_back(std::uint32_t(carry));
    }
    return out;
}

BigInt BigInt::from_double(double value) {
    int exponent = 0;
    const double fraction = std::frexp(std::trunc(value), &exponent);
    const std::int64_t mantissa = std::int64_t(std::ldexp(fraction, 53));
    exponent -= 53;
    if (exponent <= 0) return BigInt(std::int64_t(std::trunc(value)));
    BigInt out(mantissa);
    BigInt scale;
    scale.limbs_.assign(std::size_t(exponent / 32), 0);
    scale.limbs_.push_back(std::uint32_t(1) << (exponent % 32));
    return out * scale;
}

std::size_t BigInt::bits() const {
    return limbs_.empty() ? 0 : 32 * limbs_.size() - std::size_t(std::countl_zero(limbs_.back()));
}

std::optional<std::int64_t> BigInt::to_int64() const {
    if (limbs_.size() > 2) return std::nullopt;
    std::uint64_t m = 0;
    for (std::size_t i = limbs_.size(); i-- > 0;) m = (m << 32) | limbs_[i];
    const std::uint64_t limit = std::uint64_t(1) << 63;
    if (negative_ ? m > limit : m >= limit) return std::nullopt;
    return negative_ ? std::int64_t(0 - m) : std::int64_t(m);
}

double BigInt::to_double() const {
    const std::size_t n = bits();
    if (n > 1024) return negative_ ? -HUGE_VAL : HUGE_VAL;
    // The top 64 bits, with a sticky lowest bit for all below: rounding these to 53 bits rounds once and
    // right.
    std::uint64_t top = 0;
    bool sticky = false;
    const std::size_t shift = n > 64 ? n - 64 : 0;
    for (std::size_t i = 0; i < limbs_.size(); ++i) {
        const std::int64_t place = std::int64_t(32 * i) - std::int64_t(shift);
        const std::uint64_t limb = limbs_[i];
        if (place >= 0)
            top |= limb << place;
        else if (place > -32) {
            top |= limb >> -place;
            sticky |= (limb & ((std::uint64_t(1) << -place) - 1)) != 0;
        } else {
            sticky |= limb != 0;
        }
    }
    if (sticky) top |= 1;
    const double value = std::ldexp(double(top), int(shift));
    return negative_ ? -value : value;
}

std::uint32_t BigInt::divide_small(std::uint32_t divisor) {
    std::uint64_t rest = 0;
    for (std::size_t i = limbs_.size(); i-- > 0;) {
        rest = (rest << 32) | limbs_[i];
        limbs_[i] = std::uint32_t(rest / divisor);
        rest %= divisor;
    }
    trim();
    return std::uint32_t(rest);
}

std::string BigInt::to_string(int base) const {
    if (zero()) return "0";
    std::string out;
    BigInt rest = *this;
    rest.negative_ = false;
    while (!rest.zero())
        out += "0123456789abcdefghijklmnopqrstuvwxyz"[rest.divide_small(std::uint32_t(base))];
    if (negative_) out += '-';
    std::reverse(out.begin(), out.end());
    return out;
}

int BigInt::compare_magnitude(const BigInt& a, const BigInt& b) {
    if (a.limbs_.size() != b.limbs_.size()) return a.limbs_.size() < b.limbs_.size() ? -1 : 1;
    for (std::size_t i = a.limbs_.size(); i-- > 0;)
        if (a.limbs_[i] != b.limbs_[i]) return a.limbs_[i] < b.limbs_[i] ? -1 : 1;
    return 0;
}

int BigInt::compare(const BigInt& a, const BigInt& b) {
    if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
    const int c = compare_magnitude(a, b);
    return a.negative_ ? -c : c;
}

BigInt BigInt::add_magnitude(const BigInt& a, const BigInt& b) {
    BigInt out;
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < std::max(a.limbs_.size(), b.limbs_.size()) || carry; ++i) {
        if (i < a.limbs_.size()) carry += a.limbs_[i];
        if (i < b.limbs_.size()) carry += b.limbs_[i];
        out.limbs_.push_back(std::uint32_t(carry));
        carry >>= 32;
    }
    return out;
}

BigInt BigInt::subtract_magnitude(const BigInt& a, const BigInt& b) {  // |a| >= |b|
    BigInt out;
    std::int64_t borrow = 0;
    for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
        std::int64_t d =
            std::int64_t(a.limbs_[i]) - borrow - (i < b.limbs_.size() ? std::int64_t(b.limbs_[i]) : 0);
        borrow = d < 0;
        if (d < 0) d += std::int64_t(1) << 32;
        out.limbs_.push_back(std::uint32_t(d));
    }
    out.trim();
    return out;
}

BigInt BigInt::operator-() const {
    BigInt out = *this;
    out.negative_ = !out.negative_ && !out.zero();
    return out;
}

BigInt operator+(const BigInt& a, const BigInt& b) {
    BigInt out;
    if (a.negative_ == b.negative_) {
        out = BigInt::add_magnitude(a, b);
        out.negative_ = a.negative_ && !out.zero();
    } else if (BigInt::compare_magnitude(a, b) >= 0) {
        out = BigInt::subtract_magnitude(a, b);
        out.negative_ = a.negative_ && !out.zero();
    } else {
        out = BigInt::subtract_magnitude(b, a);
        out.negative_ = b.negative_ && !out.zero();
    }
    return out;
}

BigInt operator-(const BigInt& a, const BigInt& b) { return a + (-b); }

BigInt operator*(const BigInt& a, const BigInt& b) {
    BigInt out;
    if (a.zero() || b.zero()) return out;
    out.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
    for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
        std::uint64_t carry = 0;
        for (std::size_t j = 0; j < b.limbs_.size() || carry; ++j) {
            carry += out.limbs_[i + j];
            if (j < b.limbs_.size()) carry += std::uint64_t(a.limbs_[i]) * b.limbs_[j];
            out.limbs_[i + j] = std::uint32_t(carry);
            carry >>= 32;
        }
    }
    out.trim();
    out.negative_ = a.negative_ != b.negative_;
    return out;
}

void BigInt::divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder) {
    // Bit by bit: the values that a template may hold have at most some ten thousand bits.
    BigInt q, r, divisor = b;
    divisor.negative_ = false;
    q.limbs_.assign(a.limbs_.size(), 0);
    for (std::size_t i = a.bits(); i-- > 0;) {
        r = BigInt::add_magnitude(r, r);
        r.trim();
        if ((a.limbs_[i / 32] >> (i % 32)) & 1) r = BigInt::add_magnitude(r, BigInt(1));
        if (compare_magnitude(r, divisor) >= 0) {
            r = subtract_magnitude(r, divisor);
            q.limbs_[i / 32] |= std::uint32_t(1) << (i % 32);
        }
    }
    q.trim();
    q.negative_ = a.negative_ != b.negative_ && !q.zero();
    r.negative_ = a.negative_ && !r.zero();
    if (!r.zero() && a.negative_ != b.negative_) {  // from truncation to floor
        q = q - BigInt(1);
        r = r + b;
    }
    quotient = q;
    remainder = r;
}

}  // namespace llmgen::jinja
