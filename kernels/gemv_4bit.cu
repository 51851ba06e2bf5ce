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
// order, with table look-ups for two elements at a time; in_features is then a multiple of 512 from 1024 to 16384.
#include "codebook.cuh"
#include "gemv_tuned.cuh"

constexpr u32 ROWS_PER_BLOCK = 4;

template <typename T>
DEVICE float accumulate(float acc, typename T::Word x, typename T::Word q, typename T::Word s) {
    return add_flushed(acc, T::widen(T::multiply(x, T::multiply(q, s))));
}

template <>
__device__ __forceinline__ float accumulate<Fp32>(float acc, float x, float q, float s) {
    return fma_flushed(x, multiply_flushed(q, s), acc);
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

// One run of packed weights: by one 16-byte load where more of the row follows, else byte by byte.
DEVICE void load_run_or_end(const u8* packed, u32 elements_left, u8* bytes) {
    if (RUN < elements_left) {
        const uint4 words = *reinterpret_cast<const uint4*>(packed);
        memcpy(bytes, &words, sizeof(words));
    } else {
#pragma unroll
        for (u32 i = 0; i < RUN / 2; i++) bytes[i] = i < elements_left / 2 ? packed[i] : 0;
    }
}

// Reads the end of a row piece by piece. Of sixteen forms with the same bits this one comes nearest to the library's
// times at three shapes (docs/measurements.md).
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
        u8 bytes[RUN / 2];
        load_run_or_end(packed + (start + k) / 2, in_features - k, bytes);
        const Word s = T::round(__ldg(absmax + ((start + k) >> blocksize_log2)));
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            Word activations[8];
            if (k + 8 * i + 8 < in_features) {
                load_activations<T>(x + k + 8 * i, activations);
            } else {
#pragma unroll
                for (u32 j = 0; j < 8; j++) activations[j] = k + 8 * i + j < in_features ? x[k + 8 * i + j] : Word(0);
            }
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                const u32 index = bytes[4 * i + j / 2] >> (j % 2 == 0 ? 4 : 0) & 15;
                acc = accumulate<T>(acc, activations[j], table[index], s);
            }
        }
    }
    acc = sum_of_lanes(acc);
    if (lane == 0) y[row] = T::round(acc);
}

template <typename T>
DEVICE float accumulate_byte(float acc, u32 line, u32 s, u32 x) {
    const u32 q = look_up(line);
    const u32 product = T::multiply_pair(x, T::multiply_pair(q, s));
    return add_flushed(add_flushed(acc, T::low(product)), T::high(product));
}

// Sixteen bytes of packed weights with the 32 activations they meet.
template <typename T>
DEVICE float accumulate_run(float acc, u32 own, const uint4& words, u32 s, const uint4* vectors) {
    const u32 parts[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u32 pairs[4] = {vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w};
#pragma unroll
        for (u32 j = 0; j < 4; j++) acc = accumulate_byte<T>(acc, line_of(parts[i], j, own), s, pairs[j]);
    }
    return acc;
}

// Blocks of weights under one f32 each.
template <typename T>
struct Blockwise {
    typedef float Scale;
    typedef u32 Factor;
    const float* absmax;
    const float* code;
    u32 blocksize_log2;

    MEMBER u32 table_values(u32 byte) const { return T::round_pair(code[byte >> 4], code[byte & 15]); }
    MEMBER const float* scales_from(u64 start) const { return absmax + (start >> blocksize_log2); }
    MEMBER u32 scales_before(u32 element) const { return element >> blocksize_log2; }
    DEVICE u32 factor(float scale) { return T::round_pair(scale, scale); }
    template <u32 ROWS>
    DEVICE void accumulate(float* acc, u32 own, const uint4* words, const u32* factors, const uint4* vectors) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) acc[r] = accumulate_run<T>(acc[r], own, words[r], factors[r], vectors);
    }
    MEMBER u16 finish(float sum) const { return T::round(sum); }
};

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
        gemv_tuned(Blockwise<T>{absmax, code, blocksize_log2}, x, packed, y, in_features, out_features);                \
    }

GEMV(fp32, Fp32)
GEMV(bf16, Bf16)
GEMV(fp16, Fp16)
GEMV_TUNED(bf16, Bf16)
GEMV_TUNED(fp16, Fp16)
