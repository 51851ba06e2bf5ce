// The nested level, 8-bit codes of centred absmax values: twin quantize_8bit.rs.
//
// values  nb f32, in blocks of 256
// map     256 ascending f32
// codes   nb bytes
// absmax2 ceil(nb / 256) f32
#include "numbers.cuh"

constexpr u32 NESTED_BLOCKSIZE = 256;
constexpr u32 QUANTIZE_THREADS = 128;
constexpr u32 MIDPOINTS = 255;

// The number of midpoints strictly below x; a tie goes to the even one of the two neighbours; NaN gives 0.
DEVICE u8 code_of(float x, const float* midpoints) {
    u32 below = 0;
#pragma unroll
    for (u32 step = 128; step > 0; step /= 2) {
        if (x > midpoints[below + step - 1]) below += step;
    }
    const bool tie = below < MIDPOINTS && x == midpoints[below];
    return u8(tie ? below + below % 2 : below);
}

extern "C" __global__ void __launch_bounds__(128)
    quantize_8bit(const float* values, const float* map, float* absmax2, u8* codes, u64 nb) {
    __shared__ float midpoints[MIDPOINTS];
    __shared__ float scratch[QUANTIZE_THREADS / WARP];
    for (u32 i = threadIdx.x; i < MIDPOINTS; i += QUANTIZE_THREADS) midpoints[i] = (map[i] + map[i + 1]) * 0.5f;
    const u64 first = u64(blockIdx.x) * NESTED_BLOCKSIZE + threadIdx.x * 2;
    float pair[2];
    float largest = -FLOAT_MAX;
    for (u32 i = 0; i < 2; i++) {
        pair[i] = first + i < nb ? values[first + i] : 0.0f;
        largest = max_flushed(largest, fabsf(pair[i]));
    }
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        largest = max_flushed(largest, __shfl_xor_sync(FULL_WARP, largest, distance));
    }
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = largest;
    __syncthreads();
    for (u32 i = 0; i < QUANTIZE_THREADS / WARP; i++) largest = max_flushed(largest, scratch[i]);
    if (threadIdx.x == 0) absmax2[blockIdx.x] = largest;
    const float r = reciprocal_flushed(largest);
    for (u32 i = 0; i < 2; i++) {
        if (first + i < nb) codes[first + i] = code_of(multiply_flushed(pair[i], r), midpoints);
    }
}

// values[i] = map[codes[i]] * absmax2[i / 256], flushed; 64 threads with eight values each.
extern "C" __global__ void __launch_bounds__(64)
    dequantize_8bit(const u8* codes, const float* map, const float* absmax2, float* values, u64 nb) {
    const u64 first = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        if (first + i < nb) {
            values[first + i] = multiply_flushed(map[codes[first + i]], absmax2[(first + i) / NESTED_BLOCKSIZE]);
        }
    }
}
