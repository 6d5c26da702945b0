#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "weights/json_file.h"

namespace llmgen {
namespace {

using weights::printable;

constexpr std::uint64_t kPrefix = 8;
constexpr std::uint64_t kLook = 512;  // bytes of the front that tell N, or what else the file is
constexpr std::uint64_t kMaxHeader = 100'000'000;

struct Type {
    std::string_view name;
    std::uint64_t bits;
};

// All that the format names; dtype() says which of them can be computed with.
constexpr std::array<Type, 22> kTypes{{
    {"F32", 32},        {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"C64", 64},    {"I64", 64},
    {"I32", 32},        {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},    {"U16", 16},
    {"U8", 8},          {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
}};

std::optional<std::uint64_t> bits_of(std::string_view type) {
    for (const Type& known : kTypes)
        if (known.name == type) return known.bits;
    return std::nullopt;
}

// The header's JSON, taken apart as it is parsed: a header may have 100 MB, a tree of it ten times as much.
//   depth 1: names, depth 2: the three keys, depth 3: shape and data_offsets
class HeaderReader {
public:
    HeaderReader(const std::string& origin, std::vector<TensorInfo>& tensors)
        : origin_(origin), tensors_(tensors) {}

    // The interface of nlohmann's SAX parser.
    using json = nlohmann::json;
    bool null() { return place_ == Place::metadata && depth_ == 1 ? true : scalar("null"); }
    bool boolean(bool) { return scalar("a boolean"); }
    bool number_integer(json::number_integer_t) { return scalar("a negative number"); }
    bool number_unsigned(json::number_unsigned_t value) {
        if (skip_ || !in_list()) return scalar("a number");
        auto& list = place_ == Place::shape ? info_.shape : offsets_;
        if (list.size() >= kMaxRank) bad("has more than {} numbers", kMaxRank);
        list.push_back(value);
        return true;
    }
    bool number_float(json::number_float_t, const json::string_t&) {
        return scalar("a fraction or a number past 64 bits");
    }
    bool string(json::string_t& value) {
        if (place_ == Place::metadata && depth_ == 2) return true;
        if (skip_ || place_ != Place::type || depth_ != 2) return scalar("a string");
        info_.type = value;
        return true;
    }
    bool binary(json::binary_t&) { return scalar("binary data"); }
    bool start_object(std::size_t) {
        ++depth_;
        if (skip_ || depth_ == 1) return true;
        if (depth_ != 2 || (place_ != Place::tensor && place_ != Place::metadata)) unexpected("an object");
        return true;
    }
    bool end_object() {
        if (depth_ == 2 && place_ != Place::metadata) end_tensor();
        --depth_;
        end_skip();
        return true;
    }
    bool start_array(std::size_t) {
        ++depth_;
        if (skip_) return true;
        if (depth_ != 3 || !(place_ == Place::shape || place_ == Place::offsets)) unexpected("an array");
        return true;
    }
    bool end_array() {
        --depth_;
        end_skip();
        return true;
    }
    bool key(json::string_t& name) {
        if (skip_) return true;
        if (depth_ == 1) begin_tensor(name);
        if (depth_ == 2 && place_ != Place::metadata) begin_member(name);
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const json::exception&) {
        fail("{}: the header is not valid JSON: error at its byte {}", origin_, position);
    }

private:
    enum class Place { metadata, tensor, type, shape, offsets };
    static constexpr std::size_t kMaxRank = 64;

    template <typename... Args>
    [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
        constexpr std::array<const char*, 5> kMembers{"", "", " dtype", " shape", " data_offsets"};
        fail("{}: {}{} {}", origin_,
             place_ == Place::metadata ? "__metadata__" : "tensor " + printable(info_.name),
             kMembers[std::size_t(place_)], fmt::format(format, std::forward<Args>(args)...));
    }
    [[noreturn]] void unexpected(const char* what) const {
        static constexpr std::array<const char*, 5> kExpected{"text for each key", "an object", "a string",
                                                              "a list of whole numbers", "two whole numbers"};
        bad("is {}, expected {}", what, kExpected[std::size_t(place_)]);
    }
    bool scalar(const char* what) {
        if (!skip_) unexpected(what);
        end_skip();
        return true;
    }
    bool in_list() const { return depth_ == 3 && (place_ == Place::shape || place_ == Place::offsets); }

    void begin_tensor(const std::string& name) {
        if (name == "__metadata__" && std::exchange(has_metadata_, true))
            fail("{}: __metadata__ is in the header twice", origin_);
        place_ = name == "__metadata__" ? Place::metadata : Place::tensor;
        info_ = TensorInfo{};
        info_.name = name;
        offsets_.clear();
        seen_ = {};
    }
    void begin_member(const std::string& name) {
        if (name == "dtype") {
            place_ = Place::type;
        } else if (name == "shape") {
            place_ = Place::shape;
        } else if (name == "data_offsets") {
            place_ = Place::offsets;
        } else {  // a key that the format doesn't have yet: whatever it holds is passed over
            place_ = Place::tensor;
            skip_ = true;
            skip_depth_ = depth_;
            return;
        }
        bool& seen = seen_[std::size_t(place_) - std::size_t(Place::type)];
        if (seen) bad("is there twice");
        seen = true;
    }
    void end_skip() {
        if (skip_ && depth_ == skip_depth_) skip_ = false;
    }
    void end_tensor() {
        place_ = Place::tensor;
        constexpr std::array<const char*, 3> kKeys{"dtype", "shape", "data_offsets"};
        for (std::size_t i = 0; i < kKeys.size(); ++i)
            if (!seen_[i]) bad("has no {}", kKeys[i]);
        if (offsets_.size() != 2) bad("has {} data_offsets, expected 2", offsets_.size());
        info_.begin = offsets_[0];
        info_.end = offsets_[1];
        tensors_.push_back(std::move(info_));
    }

    const std::string& origin_;
    std::vector<TensorInfo>& tensors_;
    int depth_ = 0;
    Place place_ = Place::tensor;
    TensorInfo info_;
    std::vector<std::uint64_t> offsets_;
    std::array<bool, 3> seen_{};
    bool has_metadata_ = false;
    bool skip_ = false;
    int skip_depth_ = 0;
};

/// N; what isn't a safetensors file at all is called by its name where it has one.
std::uint64_t header_length(std::string_view front, std::uint64_t file_size, const std::string& origin) {
    weights::refuse_foreign(front.substr(0, kLook), origin);
    if (file_size < kPrefix)
        fail("{}: {} bytes are too few for a safetensors file; download it again", origin, file_size);
    std::uint64_t length = 0;
    for (std::size_t i = kPrefix; i-- > 0;) length = length << 8 | static_cast<unsigned char>(front[i]);
    if (length > kMaxHeader)
        fail("{}: header too large: {} bytes, limit {}; not a safetensors file?", origin, length, kMaxHeader);
    if (length > file_size - kPrefix)
        fail("{}: truncated: {} bytes, but the header alone takes {}; download it again", origin, file_size,
             length + kPrefix);
    return length;
}

void check_size(const TensorInfo& info, const std::string& origin) {
    const std::string name = printable(info.name);
    if (info.begin > info.end)
        fail("{}: tensor {}: data_offsets [{}, {}] end before they begin", origin, name, info.begin,
             info.end);
    std::uint64_t count = 1;
    bool wraps = false;
    for (const std::uint64_t dim : info.shape) wraps |= __builtin_mul_overflow(count, dim, &count);
    const auto bits = bits_of(info.type);
    if (!bits && !wraps) return;  // size unknown; an error when somebody asks for it
    std::uint64_t total = 0;
    wraps |= __builtin_mul_overflow(count, bits.value_or(1), &total);
    if (wraps)
        fail("{}: tensor {}: shape {} has more bytes than 64 bits can count", origin, name, describe(info));
    if (total % 8 != 0 || total / 8 != info.bytes())
        fail("{}: tensor {}: {} takes {} bytes, data_offsets have {}", origin, name, describe(info),
             total / 8, info.bytes());
}

void check_names(std::vector<TensorInfo>& tensors, const std::string& origin) {
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    const auto twice = std::adjacent_find(tensors.begin(), tensors.end(),
                                          [](const auto& a, const auto& b) { return a.name == b.name; });
    if (twice != tensors.end()) fail("{}: tensor {} is in the header twice", origin, printable(twice->name));
}

/// The tensors, ascending by begin, must cover the data without overlap, gap or rest.
void check_layout(const std::vector<TensorInfo>& tensors,
                  std::uint64_t data_size,
                  std::uint64_t header_size,
                  const std::string& origin) {
    std::uint64_t last_end = 0;
    for (const TensorInfo& info : tensors) last_end = std::max(last_end, info.end);
    std::uint64_t expected = 0;
    if (__builtin_add_overflow(last_end, header_size, &expected)) expected = UINT64_MAX;
    if (last_end > data_size)
        fail("{}: truncated: {} bytes, but its header describes {}; download it again", origin,
             data_size + header_size, expected);
    if (last_end < data_size)
        fail("{}: {} bytes, but its header describes {}: {} at the end belong to no tensor", origin,
             data_size + header_size, expected, data_size - last_end);
    std::uint64_t at = 0;
    const TensorInfo* previous = nullptr;
    for (const TensorInfo& info : tensors) {
        const std::string after = previous ? "tensor " + printable(previous->name) : "the header";
        if (info.begin < at)
            fail("{}: tensor {} begins at {}, inside {} which ends at {}", origin, printable(info.name),
                 info.begin, after, at);
        if (info.begin > at)
            fail("{}: gap of {} bytes between {} and tensor {}", origin, info.begin - at, after,
                 printable(info.name));
        at = info.end;
        previous = &info;
    }
}

}  // namespace

std::optional<DType> TensorInfo::dtype() const {
    if (type == "F32") return DType::f32;
    if (type == "BF16") return DType::bf16;
    if (type == "F16") return DType::f16;
    return std::nullopt;
}

std::string describe(const TensorInfo& info) {
    return fmt::format("[{}] {}", fmt::join(info.shape, ", "), printable(info.type));
}

std::vector<TensorInfo> parse_safetensors(std::string_view front,
                                          std::uint64_t file_size,
                                          const std::string& origin) {
    const std::uint64_t length = header_length(front, file_size, origin);
    const std::string_view header = front.substr(kPrefix, length);
    if (!header.starts_with('{'))
        fail("{}: the header doesn't begin with '{{'; not a safetensors file?", origin);
    // The parser takes a NUL for the end; JSON has none anywhere.
    if (const auto nul = header.find('\0'); nul != std::string_view::npos)
        fail("{}: the header is not valid JSON: error at its byte {}", origin, nul + 1);
    std::vector<TensorInfo> tensors;
    HeaderReader reader(origin, tensors);
    nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
    check_names(tensors, origin);
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
        return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    for (const TensorInfo& info : tensors) check_size(info, origin);
    check_layout(tensors, file_size - kPrefix - length, kPrefix + length, origin);
    return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, FileAccess access)
    : file_(std::make_shared<MappedFile>(path, access)) {
    const auto bytes = file_->bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    file_->fetch(0, std::min(kLook, bytes.size()));
    header_size_ = kPrefix + header_length(text, bytes.size(), path.string());
    file_->fetch(0, header_size_);
    tensors_ = parse_safetensors(text, bytes.size(), path.string());
}

std::span<const std::byte> SafetensorsFile::header() const { return file_->bytes().first(header_size_); }

std::span<const std::byte> SafetensorsFile::data(const TensorInfo& info) const {
    file_->fetch(header_size_ + info.begin, info.bytes());
    return file_->bytes().subspan(header_size_ + info.begin, info.bytes());
}

void SafetensorsFile::drop(const TensorInfo& info) const {
    file_->drop(header_size_ + info.begin, info.bytes());
}

std::shared_ptr<const void> SafetensorsFile::hold(const TensorInfo& info) const {
    if (!file_->mapped()) return nullptr;
    const std::size_t offset = header_size_ + info.begin, size = info.bytes();
    return {file_->bytes().data() + offset, DropPart{file_, offset, size}};
}

}  // namespace llmgen
