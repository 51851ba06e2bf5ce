// Blockwise 4-bit quantisation: twin quantize_4bit.rs.
//
// x      n elements of T
// absmax ceil(n / blocksize) f32
// packed ceil(n / 2) bytes, the even element in the high nibble
//
// Set `bnb`: one thread block a quantisation block, blocksize / 2 threads with two elements each up to 512, else
// blocksize / 4 with four; each thread stores single bytes. Set `tuned`: a warp takes whole quantisation blocks with
// 16-byte loads and selects instead of branching; the indices are the same bits.
#include "codebook.cuh"

// The maximum over all threads of a block, to all of them. `scratch` holds one value a warp.
DEVICE float block_max(float value, float* scratch) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 members = blockDim.x < WARP ? (1u << blockDim.x) - 1 : FULL_WARP;
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        if (distance < blockDim.x) value = max_flushed(value, __shfl_xor_sync(members, value, distance));
    }
    if (blockDim.x <= WARP) return value;
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    value = scratch[0];
    for (u32 i = 1; i < blockDim.x / WARP; i++) value = max_flushed(value, scratch[i]);
    return value;
}

template <typename Book, typename T, u32 PER_THREAD>
DEVICE void quantize(const typename T::Word* x, float* absmax, u8* packed, u64 n) {
    __shared__ float scratch[WARP];
    const u64 first = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * PER_THREAD;
    float values[PER_THREAD];
    float largest = -FLOAT_MAX;
    for (u32 i = 0; i < PER_THREAD; i++) {
        values[i] = first + i < n ? T::widen(x[first + i]) : 0.0f;
        largest = max_flushed(largest, fabsf(values[i]));
    }
    largest = block_max(largest, scratch);
    if (threadIdx.x == 0) absmax[blockIdx.x] = largest;
    const float r = reciprocal_flushed(largest);
    for (u32 i = 0; i < PER_THREAD; i += 2) {
        const u32 high = Book::index(multiply_flushed(values[i], r));
        const u32 low = Book::index(multiply_flushed(values[i + 1], r));
        if (first + i < n) packed[(first + i) / 2] = u8(high << 4 | low);
    }
}

// Eight elements as two or one 16-byte loads.
DEVICE void load_eight(const float* x, float* values) {
    const float4 a = reinterpret_cast<const float4*>(x)[0], b = reinterpret_cast<const float4*>(x)[1];
    values[0] = a.x, values[1] = a.y, values[2] = a.z, values[3] = a.w;
    values[4] = b.x, values[5] = b.y, values[6] = b.z, values[7] = b.w;
}

template <typename T>
DEVICE void load_eight_halves(const u16* x, float* values) {
    const uint4 words = *reinterpret_cast<const uint4*>(x);
    const u32 pairs[4] = {words.x, words.y, words.z, words.w};
    for (u32 i = 0; i < 4; i++) values[2 * i] = T::low(pairs[i]), values[2 * i + 1] = T::high(pairs[i]);
}

template <typename T>
struct Load;
template <>
struct Load<Fp32> {
    DEVICE void eight(const float* x, float* values) { load_eight(x, values); }
};
template <>
struct Load<Bf16> {
    DEVICE void eight(const u16* x, float* values) { load_eight_halves<Bf16>(x, values); }
};
template <>
struct Load<Fp16> {
    DEVICE void eight(const u16* x, float* values) { load_eight_halves<Fp16>(x, values); }
};

// Each thread takes eight elements; blocksize / 8 neighbouring threads share a quantisation block, which is at most a
// warp for block sizes up to 256. Larger blocks and the elements after the last whole block go to the `bnb` kernel.
template <typename Book, typename T>
DEVICE void quantize_tuned(const typename T::Word* x, float* absmax, u8* packed, u64 groups, u32 threads_per_block) {
    const u64 group = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    float values[8];
    float largest = -FLOAT_MAX;
    if (group < groups) {
        Load<T>::eight(x + group * 8, values);
#pragma unroll
        for (u32 i = 0; i < 8; i++) largest = max_flushed(largest, fabsf(values[i]));
    }
    for (u32 distance = 1; distance < threads_per_block; distance *= 2) {
        largest = max_flushed(largest, __shfl_xor_sync(FULL_WARP, largest, distance));
    }
    if (group >= groups) return;
    if (group % threads_per_block == 0) absmax[group / threads_per_block] = largest;
    const float r = reciprocal_flushed(largest);
    u32 word = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        const u32 index = Book::index_by_selection(multiply_flushed(values[i], r));
        word |= index << (8 * (i / 2) + (i % 2 == 0 ? 4 : 0));
    }
    reinterpret_cast<u32*>(packed)[group] = word;
}

#define QUANTIZE(book, Book, format, T)                                                                               \
    extern "C" __global__ void quantize_4bit_##book##_##format##_2(const T::Word* x, float* absmax, u8* packed,       \
                                                                   u64 n) {                                           \
        quantize<Book, T, 2>(x, absmax, packed, n);                                                                   \
    }                                                                                                                 \
    extern "C" __global__ void quantize_4bit_##book##_##format##_4(const T::Word* x, float* absmax, u8* packed,       \
                                                                   u64 n) {                                           \
        quantize<Book, T, 4>(x, absmax, packed, n);                                                                   \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                                 \
        quantize_4bit_##book##_##format##_tuned(const T::Word* x, float* absmax, u8* packed, u64 groups,              \
                                                u32 threads_per_block) {                                              \
        quantize_tuned<Book, T>(x, absmax, packed, groups, threads_per_block);                                        \
    }

QUANTIZE(nf4, Nf4, fp32, Fp32)
QUANTIZE(nf4, Nf4, bf16, Bf16)
QUANTIZE(nf4, Nf4, fp16, Fp16)
QUANTIZE(fp4, Fp4, fp32, Fp32)
QUANTIZE(fp4, Fp4, bf16, Bf16)
QUANTIZE(fp4, Fp4, fp16, Fp16)
