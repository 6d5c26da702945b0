// The physical floor beside a figure, and the refusal of a figure below it.
//
//   decode   one step reads all weights once and the keys and values of every sequence:
//            floor = (weight_bytes + batch · context · kv_bytes_per_token) / measured read bandwidth
//   prefill  FLOP of the model's own count: n · prefill_flop_per_token + 2 · hidden · vocab (last position)
//            + 2 · n_layers · hidden · n² (causal q·k and p·v)
//
// A stopwatch that stops too early shows as a pace above the floor: such a figure is refused, not printed.
// Two honest things look alike and are let through: weights that lie in the last-level cache are not read
// from memory (so the bytes that fit there count as free), and a measurement of bandwidth can itself be low
// by a few per cent (kTolerance).
#pragma once

#include <cstddef>
#include <string>

#include "llmgen/llmgen.h"

namespace llmgen::bench {

constexpr double kTolerance = 1.15;

/// What the machine reached in plain loops; 0 = unknown.
struct Machine {
    std::string description;
    double read_bytes_per_s = 0;
    double matmul_flop_per_s = 0;
    std::size_t cache_bytes = 0;  // last level
    double busy = 1;              // others' load took up to this factor from what was measured
};

/// Facts of an engine that the floor needs.
struct Model {
    std::size_t weight_bytes = 0, kv_bytes_per_token = 0;
    double prefill_flop_per_token = 0, flop_last = 0, attention_flop_per_token2 = 0;
};
Model model_of(const EngineInfo& info);

/// Bytes that one decode step of `batch` sequences with `context` tokens each must read.
double step_bytes(const Model& model, double batch, double context);
/// Seconds; 0 where the bandwidth is unknown.
double decode_floor_s(const Model& model, const Machine& machine, double batch, double context);
/// Of one prompt of `n` tokens.
double prefill_flop(const Model& model, double n);

/// "" where the figure can be, else one line why it can't.
std::string implausible_decode(
    const Model& model, const Machine& machine, double batch, double context, double step_s);
std::string implausible_prefill(const Model& model, const Machine& machine, double n, double seconds);

/// The device's measured limits, from describe_devices(). Unknown values stay 0.
Machine measure_machine(const EngineInfo& info);
/// The same from its JSON text; `device` and `compute` are EngineInfo's.
Machine machine_from_json(const std::string& devices_json,
                          const std::string& device,
                          const std::string& compute);
/// A limit is what was ever reached: on a busy machine one measurement is low, and honest figures would be
/// refused. So it is measured before and after the loads.
Machine best_of(const Machine& a, const Machine& b);
/// The factor by which a load of `load` runnable threads can slow a measurement with `threads` on `cores`; 1
/// where the cores suffice for all.
double busy_factor(double load, int threads, int cores);

}  // namespace llmgen::bench
