// Fused product of one row of activations and a packed weight: twin gemv_4bit.rs.
//
// x      in_features of T
// packed out_features * in_features / 2 bytes, row-major; in_features is a multiple of the block size
// absmax f32, one a block
// code   16 f32 in device memory
// y      out_features of T
//
// Lane l of a warp takes the elements 32 l to 32 l + 31 of every 1024, in order, into one f32; a tree of shuffles adds
// the lanes. Set `bnb`: four warps a thread block, one output row a warp. Set `tuned`: the same additions in the same
// order, with table look-ups for two elements at a time. in_features is at most 16384 there.
#include "codebook.cuh"

constexpr u32 RUN = 32;
constexpr u32 CHUNK = WARP * RUN;
constexpr u32 ROWS_PER_BLOCK = 4;

template <typename T>
DEVICE float accumulate(float acc, typename T::Word x, typename T::Word q, typename T::Word s) {
    return add_flushed(acc, T::widen(T::multiply(x, T::multiply(q, s))));
}

template <>
__device__ __forceinline__ float accumulate<Fp32>(float acc, float x, float q, float s) {
    return fma_flushed(x, multiply_flushed(q, s), acc);
}

// Lane 0 gets the sum: neighbours first.
DEVICE float sum_of_lanes(float acc) {
#pragma unroll
    for (u32 distance = 1; distance < WARP; distance *= 2) {
        acc = __fadd_rn(acc, __shfl_down_sync(FULL_WARP, acc, distance));
    }
    return acc;
}

// Eight activations at a time, with 16-byte loads.
template <typename T>
DEVICE void load_activations(const typename T::Word* x, typename T::Word* values) {
    constexpr u32 VECTORS = 8 * sizeof(typename T::Word) / sizeof(uint4);
    uint4 words[VECTORS];
#pragma unroll
    for (u32 i = 0; i < VECTORS; i++) words[i] = __ldg(reinterpret_cast<const uint4*>(x) + i);
    memcpy(values, words, sizeof(words));
}

template <typename T>
DEVICE void gemv(const typename T::Word* x, const u8* packed, const float* absmax, const float* code,
                 typename T::Word* y, u32 in_features, u32 out_features, u32 blocksize_log2) {
    typedef typename T::Word Word;
    __shared__ Word table[16];
    if (threadIdx.x < 16) table[threadIdx.x] = T::round(code[threadIdx.x]);
    __syncthreads();
    const u32 lane = threadIdx.x % WARP;
    const u32 row = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / WARP;
    if (row >= out_features) return;
    const u64 start = u64(row) * in_features;
    float acc = 0.0f;
    for (u32 k = lane * RUN; k < in_features; k += CHUNK) {
        const uint4 words = *reinterpret_cast<const uint4*>(packed + (start + k) / 2);
        const u32 nibbles[4] = {words.x, words.y, words.z, words.w};
        const Word s = T::round(__ldg(absmax + ((start + k) >> blocksize_log2)));
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            Word activations[8];
            load_activations<T>(x + k + 8 * i, activations);
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                const u32 index = nibbles[i] >> (8 * (j / 2) + (j % 2 == 0 ? 4 : 0)) & 15;
                acc = accumulate<T>(acc, activations[j], table[index], s);
            }
        }
    }
    acc = sum_of_lanes(acc);
    if (lane == 0) y[row] = T::round(acc);
}

constexpr u32 TUNED_WARPS = 16;
constexpr u32 TUNED_ROWS = 2;
// Shared memory is 256 lines of 256 bytes. The first half of line b holds the two table values of byte b of packed
// weights, once for each lane; the second halves hold the activations. So a byte that lies at bits 8 to 15 is the
// address of its line, and no two lanes meet in a bank.
constexpr u32 LINES = 256;
constexpr u32 LINE_BYTES = 256;
constexpr u32 ACTIVATIONS_AT = 128;
constexpr u32 VECTORS_PER_LINE = 8;

template <typename T>
DEVICE float accumulate_byte(float acc, const u8* lookup, u32 line, u32 s, u32 x) {
    const u32 q = *reinterpret_cast<const u32*>(lookup + line);
    const u32 product = T::multiply_pair(x, T::multiply_pair(q, s));
    return add_flushed(add_flushed(acc, T::low(product)), T::high(product));
}

// Four bytes of packed weights with the eight activations they meet. `own` is the lane's place in a line.
template <typename T>
DEVICE float accumulate_word(float acc, const u8* lookup, u32 own, u32 word, u32 s, uint4 x) {
    acc = accumulate_byte<T>(acc, lookup, (word << 8 & 0xff00) | own, s, x.x);
    acc = accumulate_byte<T>(acc, lookup, (word & 0xff00) | own, s, x.y);
    acc = accumulate_byte<T>(acc, lookup, (word >> 8 & 0xff00) | own, s, x.z);
    return accumulate_byte<T>(acc, lookup, (word >> 16 & 0xff00) | own, s, x.w);
}

// Where vector `i` of the activations lies.
DEVICE u32 place(u32 i) { return i / VECTORS_PER_LINE * LINE_BYTES + ACTIVATIONS_AT + i % VECTORS_PER_LINE * 16; }

// Every thread block walks over rows until there are none left. Eight activations of each lane lie side by side.
template <typename T>
DEVICE void gemv_tuned(const u16* x, const u8* packed, const float* absmax, const float* code, u16* y, u32 in_features,
                       u32 out_features, u32 blocksize_log2) {
    extern __shared__ uint4 shared[];
    u8* lines = reinterpret_cast<u8*>(shared);
    for (u32 i = threadIdx.x; i < LINES * WARP; i += blockDim.x) {
        const u32 byte = i / WARP;
        const u32 values = T::round(code[byte >> 4]) | u32(T::round(code[byte & 15])) << 16;
        *reinterpret_cast<u32*>(lines + byte * LINE_BYTES + i % WARP * 4) = values;
    }
    for (u32 i = threadIdx.x; i < in_features / 8; i += blockDim.x) {
        const u32 chunk = i / (CHUNK / 8), lane = i / 4 % WARP, quarter = i % 4;
        const uint4 vector = reinterpret_cast<const uint4*>(x)[i];
        *reinterpret_cast<uint4*>(lines + place((chunk * 4 + quarter) * WARP + lane)) = vector;
    }
    __syncthreads();
    const u32 lane = threadIdx.x % WARP;
    const u32 place_in_line = lane * 4;
    const u32 stride = gridDim.x * TUNED_WARPS * TUNED_ROWS;
    const u32 own = lane * RUN;
    u32 row = (blockIdx.x * TUNED_WARPS + threadIdx.x / WARP) * TUNED_ROWS;
    if (row >= out_features) return;
    // What the next step works on is always on its way, also over the end of a row: the first step of the next rows is
    // fetched in the last one of these. A row too many computes the last one again and is not stored.
    u64 starts[TUNED_ROWS];
    uint4 next[TUNED_ROWS] = {};
    float next_scale[TUNED_ROWS] = {};
    const auto fetch = [&](u32 r, u64 at) {
        next[r] = __ldcs(reinterpret_cast<const uint4*>(packed + at / 2));
        next_scale[r] = __ldcs(absmax + (at >> blocksize_log2));
    };
#pragma unroll
    for (u32 r = 0; r < TUNED_ROWS; r++) {
        starts[r] = u64(min(row + r, out_features - 1)) * in_features;
        if (own < in_features) fetch(r, starts[r] + own);
    }
    for (; row < out_features; row += stride) {
        float acc[TUNED_ROWS] = {};
        u64 after[TUNED_ROWS];
#pragma unroll
        for (u32 r = 0; r < TUNED_ROWS; r++) after[r] = u64(min(row + stride + r, out_features - 1)) * in_features;
        for (u32 k = own; k < in_features; k += CHUNK) {
            const u8* x_of_lane = lines + place(k / CHUNK * 4 * WARP + lane);
            uint4 words[TUNED_ROWS];
            u32 scales[TUNED_ROWS];
            const bool is_last = k + CHUNK >= in_features;
#pragma unroll
            for (u32 r = 0; r < TUNED_ROWS; r++) {
                words[r] = next[r];
                scales[r] = T::round(next_scale[r]) * 0x10001u;
                fetch(r, is_last ? after[r] + own : starts[r] + k + CHUNK);
            }
            uint4 vectors[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                vectors[i] = *reinterpret_cast<const uint4*>(x_of_lane + i * (WARP / VECTORS_PER_LINE * LINE_BYTES));
            }
#pragma unroll
            for (u32 r = 0; r < TUNED_ROWS; r++) {
                acc[r] = accumulate_word<T>(acc[r], lines, place_in_line, words[r].x, scales[r], vectors[0]);
                acc[r] = accumulate_word<T>(acc[r], lines, place_in_line, words[r].y, scales[r], vectors[1]);
                acc[r] = accumulate_word<T>(acc[r], lines, place_in_line, words[r].z, scales[r], vectors[2]);
                acc[r] = accumulate_word<T>(acc[r], lines, place_in_line, words[r].w, scales[r], vectors[3]);
            }
        }
#pragma unroll
        for (u32 r = 0; r < TUNED_ROWS; r++) {
            starts[r] = after[r];
            const float sum = sum_of_lanes(acc[r]);
            if (lane == 0 && row + r < out_features) y[row + r] = T::round(sum);
        }
    }
}

#define GEMV(format, T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(128)                                                                 \
        gemv_4bit_##format(const T::Word* x, const u8* packed, const float* absmax, const float* code, T::Word* y,    \
                           u32 in_features, u32 out_features, u32 blocksize_log2) {                                   \
        gemv<T>(x, packed, absmax, code, y, in_features, out_features, blocksize_log2);                               \
    }

#define GEMV_TUNED(format, T)                                                                                         \
    extern "C" __global__ void __launch_bounds__(512, 2)                                                              \
        gemv_4bit_##format##_tuned(const u16* x, const u8* packed, const float* absmax, const float* code, u16* y,    \
                                   u32 in_features, u32 out_features, u32 blocksize_log2) {                           \
        gemv_tuned<T>(x, packed, absmax, code, y, in_features, out_features, blocksize_log2);                         \
    }

GEMV(fp32, Fp32)
GEMV(bf16, Bf16)
GEMV(fp16, Fp16)
GEMV_TUNED(bf16, Bf16)
GEMV_TUNED(fp16, Fp16)
