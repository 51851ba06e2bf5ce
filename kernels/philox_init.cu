// Weights and activations from a counter: twin philox_init.rs. Every element has the bits of the twin.
#include "numbers.cuh"

DEVICE uint4 philox4x32_10(uint4 counter, uint2 key) {
#pragma unroll
    for (u32 round = 0; round < 10; round++) {
        const u32 even_low = 0xD2511F53u * counter.x, even_high = __umulhi(0xD2511F53u, counter.x);
        const u32 odd_low = 0xCD9E8D57u * counter.z, odd_high = __umulhi(0xCD9E8D57u, counter.z);
        counter = make_uint4(odd_high ^ counter.y ^ key.x, odd_low, even_high ^ counter.w ^ key.y, even_low);
        key = make_uint2(key.x + 0x9E3779B9u, key.y + 0xBB67AE85u);
    }
    return counter;
}

DEVICE uint4 words(u64 index, u64 seed, u32 stream, u32 purpose) {
    const uint4 counter = make_uint4(u32(index), u32(index >> 32), stream, purpose);
    return philox4x32_10(counter, make_uint2(u32(seed), u32(seed >> 32)));
}

constexpr u32 PURPOSE_WEIGHT = 0;
constexpr u32 PURPOSE_ACTIVATION = 1;

DEVICE float weight(u32 word, float scale) {
    return __fmul_rn(float(int(2 * (word >> 8) + 1) - 16777216), scale);
}

// Four weights a thread; n elements, row-major.
extern "C" __global__ void weights(float* y, u64 n, u64 seed, u32 stream, float scale) {
    const u64 quad = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (quad * 4 >= n) return;
    const uint4 random = words(quad, seed, stream, PURPOSE_WEIGHT);
    const float values[4] = {weight(random.x, scale), weight(random.y, scale), weight(random.z, scale),
                             weight(random.w, scale)};
    if (quad * 4 + 4 <= n) {
        reinterpret_cast<float4*>(y)[quad] = make_float4(values[0], values[1], values[2], values[3]);
        return;
    }
    for (u32 i = 0; quad * 4 + i < n; i++) y[quad * 4 + i] = values[i];
}

template <typename T>
DEVICE void activations(typename T::Word* y, u64 n, u64 seed, u32 stream, float scale) {
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const uint4 random = words(i, seed, stream, PURPOSE_ACTIVATION);
    const u32 all[4] = {random.x, random.y, random.z, random.w};
    u32 sum = 0;
    for (u32 j = 0; j < 4; j++) sum += (all[j] & 0xffff) + (all[j] >> 16);
    y[i] = T::round(__fmul_rn(float(int(sum) - 4 * 65535), scale));
}

#define ACTIVATIONS(format, T)                                                                                        \
    extern "C" __global__ void activations_##format(T::Word* y, u64 n, u64 seed, u32 stream, float scale) {           \
        activations<T>(y, n, seed, stream, scale);                                                                    \
    }

ACTIVATIONS(fp32, Fp32)
ACTIVATIONS(bf16, Bf16)
ACTIVATIONS(fp16, Fp16)
