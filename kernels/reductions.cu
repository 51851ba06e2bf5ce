// The small tensor operations around the quantise kernels, and casts: twin reductions.rs.
//
// They stand for what the reference leaves to its framework: separate roundings, nothing flushed.
#include "numbers.cuh"

DEVICE u64 global_thread() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

extern "C" __global__ void abs_elements(const float* x, float* y, u64 n) {
    const u64 i = global_thread();
    if (i < n) y[i] = fabsf(x[i]);
}

// One thread block; `y` is one f32, the largest of n values.
extern "C" __global__ void max_elements(const float* x, float* y, u64 n) {
    __shared__ float scratch[WARP];
    float largest = 0.0f;
    for (u64 i = threadIdx.x; i < n; i += blockDim.x) largest = fmaxf(largest, x[i]);
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(FULL_WARP, largest, distance));
    }
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = largest;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 i = 1; i < blockDim.x / WARP; i++) largest = fmaxf(largest, scratch[i]);
    *y = largest;
}

extern "C" __global__ void divide_elements(float* x, const float* divisor, u64 n) {
    const u64 i = global_thread();
    if (i < n) x[i] = __fdiv_rn(x[i], *divisor);
}

extern "C" __global__ void subtract_elements(const float* x, const float* offset, float* y, u64 n) {
    const u64 i = global_thread();
    if (i < n) y[i] = __fsub_rn(x[i], *offset);
}

extern "C" __global__ void add_elements(const float* x, const float* offset, float* y, u64 n) {
    const u64 i = global_thread();
    if (i < n) y[i] = __fadd_rn(x[i], *offset);
}

// The sum of one f64 a thread over a block of 512, to thread 0.
DEVICE double block_sum(double value, double* scratch) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) value += __shfl_down_sync(FULL_WARP, value, distance);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < blockDim.x / WARP; i++) sum += scratch[i];
    }
    return sum;
}

// mean = f32(sum / n), summed in f64. Each thread block leaves a partial sum; the last one to come adds them in order,
// so that the result does not depend on which one that is. `counter` is zero before the launch. With one thread block
// neither `partial` nor `counter` is touched.
extern "C" __global__ void __launch_bounds__(512)
    mean_elements(const float* x, float* mean, double* partial, u32* counter, u64 n) {
    __shared__ double scratch[512 / WARP];
    double sum = 0.0;
    for (u64 i = global_thread(); i < n; i += u64(gridDim.x) * blockDim.x) sum += double(x[i]);
    sum = block_sum(sum, scratch);
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) {
        partial[blockIdx.x] = sum;
        __threadfence();
        if (atomicAdd(counter, 1) != gridDim.x - 1) return;
        __threadfence();
        sum = 0.0;
        for (u32 i = 0; i < gridDim.x; i++) sum += *(volatile double*)(partial + i);
    }
    *mean = __double2float_rn(sum / double(n));
}

// Eight elements a thread, in two or one vectors of each side.
template <typename From, typename To>
DEVICE void cast(const typename From::Word* x, typename To::Word* y, u64 n) {
    constexpr u32 E = 8;
    typedef typename From::Word Source;
    typedef typename To::Word Result;
    const u64 first = global_thread() * E;
    if (first >= n) return;
    if (n - first < E) {
        for (u64 i = first; i < n; i++) y[i] = To::round(From::widen(x[i]));
        return;
    }
    Source source[E];
    Result result[E];
    uint4 words[sizeof(source) / sizeof(uint4)], rounded[sizeof(result) / sizeof(uint4)];
#pragma unroll
    for (u32 i = 0; i < sizeof(source) / sizeof(uint4); i++) words[i] = reinterpret_cast<const uint4*>(x + first)[i];
    memcpy(source, words, sizeof(source));
#pragma unroll
    for (u32 i = 0; i < E; i++) result[i] = To::round(From::widen(source[i]));
    memcpy(rounded, result, sizeof(result));
#pragma unroll
    for (u32 i = 0; i < sizeof(result) / sizeof(uint4); i++) reinterpret_cast<uint4*>(y + first)[i] = rounded[i];
}

#define CAST(from, From, to, To)                                                                                      \
    extern "C" __global__ void cast_##from##_##to(const From::Word* x, To::Word* y, u64 n) { cast<From, To>(x, y, n); }

CAST(fp32, Fp32, bf16, Bf16)
CAST(fp32, Fp32, fp16, Fp16)
CAST(bf16, Bf16, fp32, Fp32)
CAST(bf16, Bf16, fp16, Fp16)
CAST(fp16, Fp16, fp32, Fp32)
CAST(fp16, Fp16, bf16, Bf16)

// Reads everything and keeps nothing: the ceiling of what a kernel can read. `sink` is never written.
extern "C" __global__ void read_elements(const uint4* x, u32* sink, u64 n) {
    u32 all = 0;
#pragma unroll 8
    for (u64 i = global_thread(); i < n; i += u64(gridDim.x) * blockDim.x) {
        const uint4 word = x[i];
        all |= word.x ^ word.y ^ word.z ^ word.w;
    }
    // No weight and no activation has this bit pattern in every word, but the compiler cannot know.
    if (all == 0x7fc0dead) *sink = all;
}
