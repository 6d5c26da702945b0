// How many prompt tokens may join a step in which others decode, so that these hardly feel a long prompt come
// in.
//
//   tokens = (max_slowdown - 1) · plain / token      plain: seconds of a step that only decodes
//                                                    token: seconds that a prompt token adds to one
//
// A prompt token costs more the more come before it, and at thousands of them so does every step, whose
// attention reads them all: the chunk shrinks as the prompt is read, and a smallest one goes on whatever it
// costs. Both are measured as the engine runs, since they differ by device, model, context and number of
// sequences. Which ids come out does not depend on it: rows of a batch don't change each other.
#pragma once

namespace llmgen {

class Pace {
public:
    /// `max_slowdown` 0: no limit. `largest`: tokens that fit into a step at all.
    Pace(double max_slowdown, int largest) : max_slowdown_(max_slowdown), largest_(largest) {}

    /// A step took that long.
    void add(int n_decoding, int n_prompt_tokens, double seconds);
    /// At least kSmallest (or `largest`), a multiple of it.
    int chunk() const;

    static constexpr int kSmallest = 4;

private:
    double max_slowdown_;
    int largest_;
    double plain_s_ = 0;  // 0: not known yet
    double token_s_ = 0;
};

}  // namespace llmgen
