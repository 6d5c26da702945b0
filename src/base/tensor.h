// A view of memory with a shape: nothing owns, nothing allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/dtype.h"
#include "base/error.h"

namespace llmgen {

/// A strided view, innermost axis contiguous. `data` points to host or device memory, as the backend that
/// made it says.
struct Tensor {
    static constexpr int kMaxRank = 4;

    void* data = nullptr;
    DType dtype = DType::f32;
    int rank = 0;
    std::array<std::int64_t, kMaxRank> shape{};
    std::array<std::int64_t, kMaxRank> stride{};  // in elements

    Tensor() = default;
    /// A contiguous view.
    Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> dims)
        : data(data), dtype(dtype), rank(int(dims.size())) {
        CHECK(rank <= kMaxRank);
        int axis = 0;
        for (const std::int64_t dim : dims) shape[std::size_t(axis++)] = dim;
        std::int64_t step = 1;
        for (axis = rank - 1; axis >= 0; --axis) {
            stride[std::size_t(axis)] = step;
            step *= shape[std::size_t(axis)];
        }
    }

    explicit operator bool() const { return data != nullptr; }
    std::int64_t dim(int axis) const { return shape[std::size_t(axis)]; }
    std::int64_t size() const {
        std::int64_t n = 1;
        for (int axis = 0; axis < rank; ++axis) n *= dim(axis);
        return n;
    }
    std::int64_t bytes() const { return size() * std::int64_t(size_of(dtype)); }
    bool contiguous() const {
        std::int64_t step = 1;
        for (int axis = rank - 1; axis >= 0; --axis) {
            if (dim(axis) != 1 && stride[std::size_t(axis)] != step) return false;
            step *= dim(axis);
        }
        return true;
    }

    /// The first `n` rows (axis 0).
    Tensor rows(std::int64_t n) const { return rows(0, n); }
    /// Rows `first` to `first + n` (axis 0).
    Tensor rows(std::int64_t first, std::int64_t n) const {
        CHECK(rank >= 1 && first >= 0 && n >= 0 && first + n <= dim(0), "rows {}+{} of {}", first, n, dim(0));
        Tensor view = *this;
        view.data = static_cast<char*>(data) + first * stride[0] * std::int64_t(size_of(dtype));
        view.shape[0] = n;
        return view;
    }
    /// Columns `first` to `first + n` of a matrix (axis 1); rows keep their stride.
    Tensor columns(std::int64_t first, std::int64_t n) const {
        CHECK(rank == 2 && first >= 0 && n >= 0 && first + n <= dim(1), "columns {}+{} of {}", first, n,
              dim(1));
        Tensor view = *this;
        view.data = static_cast<char*>(data) + first * std::int64_t(size_of(dtype));
        view.shape[1] = n;
        return view;
    }

    template <typename T>
    T* as() const {
        return static_cast<T*>(data);
    }
};

/// "[3, 576] bf16", for messages.
std::string describe(const Tensor& tensor);

/// A mismatch is our mistake (models build the shapes): names the tensor, the axis and both numbers, then
/// aborts. -1 matches any.
void expect_shape(const Tensor& tensor, const char* name, std::initializer_list<std::int64_t> dims);

}  // namespace llmgen
