// One warp shows how mma, ldmatrix, shuffles and votes deal out their registers.
#include "common/device.h"
#include "simt/hardware/probes.h"

namespace llmgen::kernels {
namespace {

__global__ void maps_kernel(Maps p) {
    SHARED_ARRAY(std::uint16_t, tiles, 4 * 64);
    const int lane = int(threadIdx.x);
    for (int i = lane; i < 4 * 64; i += 32) tiles[i] = p.tiles[i];
    sync_block();

    std::uint32_t a[4], b[2], r[4];
    float d[4] = {};
    for (int i = 0; i < 4; ++i) a[i] = p.a[lane * 4 + i];
    for (int i = 0; i < 2; ++i) b[i] = p.b[lane * 2 + i];
    mma_m16n8k16<bf16>(d, a, b);
    for (int i = 0; i < 4; ++i) p.d[lane * 4 + i] = d[i];

    const std::uint16_t* row = tiles + lane / 8 * 64 + lane % 8 * 8;
    ldmatrix_x4(r, row);
    for (int i = 0; i < 4; ++i) p.rows[lane * 4 + i] = r[i];
    ldmatrix_x4_trans(r, row);
    for (int i = 0; i < 4; ++i) p.columns[lane * 4 + i] = r[i];

    int* out = p.shuffles + lane * 5;
    out[0] = shfl(lane, 3);
    out[1] = shfl_xor(lane, 5);
    out[2] = shfl_up(lane, 2);
    out[3] = shfl_down(lane, 7);
    out[4] = int(ballot(lane % 2 == 1));
}

}  // namespace

bool launches_overlap() {
#ifdef __CUDACC__
    return overlaps_launches(maps_kernel);
#else
    return false;
#endif
}

void read_maps(const Maps& maps, Stream stream) {
    launch("maps", maps_kernel, {1, 1, 1, 32, 0}, Dependent::no, stream, maps);
}

}  // namespace llmgen::kernels
