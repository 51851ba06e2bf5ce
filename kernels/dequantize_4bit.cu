// Blockwise 4-bit dequantisation: twin dequantize_4bit.rs.
//
// packed ceil(n / 2) bytes; absmax ceil(n / blocksize) f32; y n elements of T
//
// Set `bnb`: 64 threads with 16 outputs each, 1024 a thread block. Set `tuned`: larger thread blocks, and all loads of a
// thread before its first store. In both, neighbouring threads store neighbouring 16 bytes, so that no sector is written
// twice, and 16 bytes never cross a quantisation block.
#include "codebook.cuh"

constexpr u32 OUTPUTS = 16;

template <typename Book>
DEVICE void fill(float* table) {
    if (threadIdx.x < 16) table[threadIdx.x] = Book::value(threadIdx.x);
    __syncthreads();
}

DEVICE void store_four(float* y, const float* values) {
    *reinterpret_cast<float4*>(y) = make_float4(values[0], values[1], values[2], values[3]);
}

DEVICE void store_eight(u16* y, const u16* values) {
    uint4 words;
    words.x = values[0] | u32(values[1]) << 16, words.y = values[2] | u32(values[3]) << 16;
    words.z = values[4] | u32(values[5]) << 16, words.w = values[6] | u32(values[7]) << 16;
    *reinterpret_cast<uint4*>(y) = words;
}

template <typename T>
struct Store;
template <>
struct Store<Fp32> {
    static constexpr u32 ELEMENTS = 4;
    DEVICE void vector(float* y, const float* values) { store_four(y, values); }
};
template <>
struct Store<Bf16> {
    static constexpr u32 ELEMENTS = 8;
    DEVICE void vector(u16* y, const u16* values) { store_eight(y, values); }
};
template <>
struct Store<Fp16> {
    static constexpr u32 ELEMENTS = 8;
    DEVICE void vector(u16* y, const u16* values) { store_eight(y, values); }
};

// Two indices a byte in `word`, E elements of them, under one scale.
template <typename T, u32 E>
DEVICE void decode(const float* table, u32 word, float scale, typename T::Word* values) {
#pragma unroll
    for (u32 i = 0; i < E; i++) {
        const u32 index = word >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15;
        values[i] = T::round(multiply_flushed(table[index], scale));
    }
}

// The packed bytes of one vector: two or four of them.
template <u32 E>
DEVICE u32 load(const u8* packed, u64 vector) {
    return E == 4 ? u32(reinterpret_cast<const u16*>(packed)[vector]) : reinterpret_cast<const u32*>(packed)[vector];
}

template <typename Book, typename T>
DEVICE void dequantize(const u8* packed, const float* absmax, typename T::Word* y, u32 blocksize_log2, u64 n) {
    constexpr u32 E = Store<T>::ELEMENTS;
    __shared__ float table[16];
    fill<Book>(table);
    const u64 start = u64(blockIdx.x) * blockDim.x * OUTPUTS;
#pragma unroll
    for (u32 turn = 0; turn < OUTPUTS / E; turn++) {
        const u64 first = start + (u64(turn) * blockDim.x + threadIdx.x) * E;
        if (first >= n) return;
        const float scale = absmax[first >> blocksize_log2];
        if (n - first >= E) {
            typename T::Word values[E];
            decode<T, E>(table, load<E>(packed, first / E), scale, values);
            Store<T>::vector(y + first, values);
            continue;
        }
        for (u64 i = first; i < n; i++) {
            const u32 index = packed[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;
            y[i] = T::round(multiply_flushed(table[index], scale));
        }
    }
}

// One 16-byte store a thread and turn; `vectors` whole vectors, the rest goes to the `bnb` kernel.
template <typename Book, typename T>
DEVICE void dequantize_tuned(const u8* packed, const float* absmax, typename T::Word* y, u32 blocksize_log2,
                             u64 vectors) {
    constexpr u32 E = Store<T>::ELEMENTS;
    constexpr u32 TURNS = 4;
    __shared__ float table[16];
    fill<Book>(table);
    const u64 first = u64(blockIdx.x) * blockDim.x * TURNS + threadIdx.x;
    u32 words[TURNS];
    float scales[TURNS];
#pragma unroll
    for (u32 turn = 0; turn < TURNS; turn++) {
        const u64 vector = first + turn * blockDim.x;
        if (vector >= vectors) continue;
        words[turn] = load<E>(packed, vector);
        scales[turn] = absmax[vector * E >> blocksize_log2];
    }
#pragma unroll
    for (u32 turn = 0; turn < TURNS; turn++) {
        const u64 vector = first + turn * blockDim.x;
        if (vector >= vectors) continue;
        typename T::Word values[E];
        decode<T, E>(table, words[turn], scales[turn], values);
        Store<T>::vector(y + vector * E, values);
    }
}

#define DEQUANTIZE(book, Book, format, T)                                                                             \
    extern "C" __global__ void __launch_bounds__(64)                                                                  \
        dequantize_4bit_##book##_##format(const u8* packed, const float* absmax, T::Word* y, u32 blocksize_log2,      \
                                          u64 n) {                                                                    \
        dequantize<Book, T>(packed, absmax, y, blocksize_log2, n);                                                    \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                                 \
        dequantize_4bit_##book##_##format##_tuned(const u8* packed, const float* absmax, T::Word* y,                  \
                                                  u32 blocksize_log2, u64 vectors) {                                  \
        dequantize_tuned<Book, T>(packed, absmax, y, blocksize_log2, vectors);                                        \
    }

DEQUANTIZE(nf4, Nf4, fp32, Fp32)
DEQUANTIZE(nf4, Nf4, bf16, Bf16)
DEQUANTIZE(nf4, Nf4, fp16, Fp16)
DEQUANTIZE(fp4, Fp4, fp32, Fp32)
DEQUANTIZE(fp4, Fp4, bf16, Bf16)
DEQUANTIZE(fp4, Fp4, fp16, Fp16)
