// NVFP4: twin nvfp4.rs.
//
// weight n f32, row-major; n is a multiple of 16
// global one f32: the scale of the tensor
// scales n / 16 bytes, E4M3
// packed n / 2 bytes, the even element in the low nibble
// x, y   rows of T
//
// Nothing is flushed and every division is rounded to nearest, so that all results are the bits of the twin. The
// conversion instructions of E2M1 and E4M3 begin with sm_100 and sm_89; here both are arithmetic on bits, the same on all.
//
// `nvfp4_gemv_*` is the product of one row with table look-ups for two elements at a time, where in_features is a multiple
// of 512 from 1024 to 16384; `nvfp4_product_*` takes every other shape, and several rows. Both add in the same order.
#include "gemv_tuned.cuh"

constexpr u32 GROUP = 16;
constexpr float E2M1_MAX = 6.0f;
constexpr float E4M3_MAX = 448.0f;
constexpr float E4M3_MIN = 1.0f / 512.0f;
constexpr float E4M3_MIN_NORMAL = 1.0f / 64.0f;

DEVICE u64 global_thread() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

// The value of an E4M3 byte. Its bits at the place of an fp16 are the value over 2^8, subnormals included.
DEVICE float e4m3_value(u32 byte) {
    const float value = Fp16::widen(u16((byte & 0x80) << 8 | (byte & 0x7f) << 7)) * 256.0f;
    return (byte & 0x7f) == 0x7f ? __uint_as_float(0x7fc00000) : value;
}

// The same for two bytes at a time. Where the bits of NaN are no exception they are 480.
DEVICE void e4m3_values(u32 pair, float* values) {
    constexpr u32 TWO_TO_8 = 0x5c005c00;
    const u32 apart = __byte_perm(pair, 0, 0x1404);
    const u32 words = Fp16::multiply_pair((apart & 0x80008000) | (apart >> 1 & 0x3f803f80), TWO_TO_8);
    values[0] = Fp16::low(words), values[1] = Fp16::high(words);
#pragma unroll
    for (u32 i = 0; i < 2; i++) values[i] = fabsf(values[i]) == 480.0f ? __uint_as_float(0x7fc00000) : values[i];
}

// The E4M3 byte nearest to a value from 2^-9 to 448, a tie to the even one.
DEVICE u32 e4m3_of(float value) {
    if (value < E4M3_MIN_NORMAL) return __float2uint_rn(value * 512.0f);
    const u32 bits = __float_as_uint(value);
    return (bits + 0x7ffff + (bits >> 20 & 1)) / (1u << 20) - (120u << 3);
}

// The E2M1 nibble nearest to a value, a tie to the even one, into the lowest place of a word whose others move up. NaN
// is +6; the sign is that of the bits, so that the caller rules out -0.
//
// A binade of E2M1 has two steps, and those of the first one, from 1 to 2, go on below it. So 2^22 times the binade (1, 2
// or 4) leaves the number of steps, at most 4, in the lowest bits of the sum, and the index is that number and twice the
// exponent, modulo 8: the sum and its bits from 22 on, less 2 * 149. The product has it in the highest three bits.
DEVICE u32 with_e2m1(u32 word, float value) {
    const float magnitude = fminf(fabsf(value), E2M1_MAX);
    const float binade = __uint_as_float(__float_as_uint(fmaxf(magnitude, 1.0f)) & 0x7f800000);
    const u32 sum = __float_as_uint(__fmaf_rn(binade, 0x1p22f, magnitude));
    const u32 index = sum * ((1u << 29) + (1u << 7)) - (2u * 149 << 29);
    return __funnelshift_l(index, __funnelshift_l(__float_as_uint(value), word, 1), 3);
}

// The quotient by `divisor` rounded to nearest, for many values and one reciprocal, which is rounded to nearest too
// (Markstein 1990): the fused remainder is exact. -0 gives +0.
//
// It is the one of a division where `divides_by_reciprocal` holds: the remainder of a quotient that matters, one of 1/8
// and more, is a multiple of 2^-149, nothing overflows, and a value that is not 0 has a quotient that is not 0.
DEVICE float quotient(float value, float divisor, float reciprocal) {
    const float near = __fmul_rn(value, reciprocal);
    return __fmaf_rn(__fmaf_rn(-divisor, near, value), reciprocal, near);
}

DEVICE bool divides_by_reciprocal(float largest, float divisor) {
    return divisor >= 0x1p-100f && divisor <= 1.0f && largest <= __fmul_rn(divisor, 0x1p20f);
}

DEVICE u32 group_scale(float largest, float global) {
    float scale = __fdiv_rn(largest, __fmul_rn(E2M1_MAX, global));
    if (scale == 0.0f) scale = 1.0f;
    return e4m3_of(fminf(fmaxf(scale, E4M3_MIN), E4M3_MAX));
}

// The largest magnitude of n weights into `bits`, which is 0 before the launch: the order of the bits of magnitudes is
// that of the magnitudes, so that it does not matter which thread block comes first.
extern "C" __global__ void __launch_bounds__(256) nvfp4_largest(const float4* weight, u32* bits, u64 vectors) {
    float largest = 0.0f;
#pragma unroll 4
    for (u64 i = global_thread(); i < vectors; i += u64(gridDim.x) * blockDim.x) {
        const float4 w = weight[i];
        largest = fmaxf(fmaxf(fmaxf(largest, fabsf(w.x)), fmaxf(fabsf(w.y), fabsf(w.z))), fabsf(w.w));
    }
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(FULL_WARP, largest, distance));
    }
    if (threadIdx.x % WARP == 0) atomicMax(bits, __float_as_uint(largest));
}

// The scale of the tensor in the place of its largest magnitude. One thread.
extern "C" __global__ void nvfp4_global_scale(float* global) {
    *global = *global > 0.0f ? __fdiv_rn(*global, E2M1_MAX * E4M3_MAX) : 1.0f;
}

// Eight weights a thread, two threads a group.
extern "C" __global__ void __launch_bounds__(256)
    nvfp4_quantize(const float4* weight, const float* global_scale, u8* scales, u32* packed, u64 octets) {
    const u64 octet = global_thread();
    // The number of octets is even, and so is that of lanes: both threads of a group are there or neither is.
    if (octet >= octets) return;
    const float4 first = weight[2 * octet], second = weight[2 * octet + 1];
    const float values[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
    float largest = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 8; i++) largest = fmaxf(largest, fabsf(values[i]));
    largest = fmaxf(largest, __shfl_xor_sync(__activemask(), largest, 1));
    const float global = *global_scale;
    const u32 scale = group_scale(largest, global);
    if (threadIdx.x % 2 == 0) scales[octet / 2] = u8(scale);
    const float divisor = __fmul_rn(e4m3_value(scale), global);
    u32 word = 0;
    if (divides_by_reciprocal(largest, divisor)) {
        const float reciprocal = __frcp_rn(divisor);
#pragma unroll
        for (u32 i = 8; i-- > 0;) word = with_e2m1(word, quotient(values[i], divisor, reciprocal));
    } else {
        // Seldom taken, and loading again costs less than an array that is indexed. Adding 0 makes -0 a +0.
        const float* again = reinterpret_cast<const float*>(weight + 2 * octet);
#pragma unroll 1
        for (u32 i = 8; i-- > 0;) word = with_e2m1(word, __fadd_rn(__fdiv_rn(again[i], divisor), 0.0f));
    }
    packed[octet] = word;
}

// Eight E2M1 values of a word, low nibble first. Two nibbles that are 16 bits apart become a pair of fp16: the bits of a
// magnitude at the place of an fp16 are the value over 2^14, subnormals included, and the sign is the highest bit.
DEVICE void decode(u32 word, float* values) {
    constexpr u32 TWO_TO_14 = 0x74007400;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u32 aligned = word << (12 - 4 * i);
        const u32 pair = Fp16::multiply_pair((aligned & 0x80008000) | (aligned >> 3 & 0x0e000e00), TWO_TO_14);
        values[i] = Fp16::low(pair);
        values[i + 4] = Fp16::high(pair);
    }
}

template <typename T>
DEVICE void dequantize(const u32* packed, const u8* scales, const float* global_scale, typename T::Word* y, u64 octets) {
    typedef typename T::Word Word;
    const u64 octet = global_thread();
    if (octet >= octets) return;
    float values[8];
    decode(packed[octet], values);
    const float scale = e4m3_value(scales[octet / 2]), global = *global_scale;
    Word words[8];
#pragma unroll
    for (u32 i = 0; i < 8; i++) words[i] = T::round(__fmul_rn(__fmul_rn(values[i], scale), global));
    uint4 vectors[sizeof(words) / sizeof(uint4)];
    memcpy(vectors, words, sizeof(words));
#pragma unroll
    for (u32 i = 0; i < sizeof(words) / sizeof(uint4); i++) {
        reinterpret_cast<uint4*>(y + octet * 8)[i] = vectors[i];
    }
}

static_assert(RUN == 2 * GROUP, "a run is what a lane loads at once: sixteen bytes and two scales");
constexpr u32 WARPS = 4;

// The product of two half-precision values is exact in f32, so that fusing changes no bit.
template <typename T>
DEVICE float accumulate(float acc, float x, float w) {
    return __fmaf_rn(x, w, acc);
}

template <>
__device__ __forceinline__ float accumulate<Fp32>(float acc, float x, float w) {
    return __fadd_rn(acc, __fmul_rn(x, w));
}

// Eight activations as f32.
template <typename T>
DEVICE void load_activations(const typename T::Word* x, float* values) {
    constexpr u32 VECTORS = 8 * sizeof(typename T::Word) / sizeof(uint4);
    uint4 vectors[VECTORS];
#pragma unroll
    for (u32 i = 0; i < VECTORS; i++) vectors[i] = __ldg(reinterpret_cast<const uint4*>(x) + i);
    typename T::Word words[8];
    memcpy(words, vectors, sizeof(words));
#pragma unroll
    for (u32 i = 0; i < 8; i++) values[i] = T::widen(words[i]);
}

// The two groups of a run: sixteen bytes and two scales. Of the last run of a row the second group may not be there.
DEVICE void load_run_of_row(const u8* packed, const u8* scales, u64 element, bool is_whole, bool is_aligned, uint4& words, u32& pair) {
    if (is_aligned) {
        words = __ldcs(reinterpret_cast<const uint4*>(packed + element / 2));
        pair = __ldcs(reinterpret_cast<const u16*>(scales + element / GROUP));
        return;
    }
    const uint2 first = *reinterpret_cast<const uint2*>(packed + element / 2);
    const uint2 second = is_whole ? *reinterpret_cast<const uint2*>(packed + element / 2 + 8) : uint2{0, 0};
    words = uint4{first.x, first.y, second.x, second.y};
    pair = scales[element / GROUP] | (is_whole ? u32(scales[element / GROUP + 1]) << 8 : 0);
}

// `OUTPUTS` rows of the weight a warp with `INPUTS` rows of the input. A row of the weight too many computes the last one
// again, one of the input too many the first one, and neither is stored.
template <typename T, u32 OUTPUTS, u32 INPUTS>
DEVICE void product(const typename T::Word* x, const u8* packed, const u8* scales, const float* global_scale,
                    typename T::Word* y, u32 in_features, u32 out_features, u32 rows) {
    const u32 lane = threadIdx.x % WARP;
    const u32 first_output = (blockIdx.x * WARPS + threadIdx.x / WARP) * OUTPUTS;
    const u32 first_input = blockIdx.y * INPUTS;
    if (first_output >= out_features) return;
    // Whole runs of every row begin at multiples of 16 bytes only if rows consist of whole runs.
    const bool is_aligned = in_features % RUN == 0;
    float acc[OUTPUTS][INPUTS] = {};
    for (u32 k = lane * RUN; k < in_features; k += CHUNK) {
        const bool is_whole = k + GROUP < in_features;
        uint4 words[OUTPUTS];
        u32 pairs[OUTPUTS];
#pragma unroll
        for (u32 o = 0; o < OUTPUTS; o++) {
            const u64 element = u64(min(first_output + o, out_features - 1)) * in_features + k;
            load_run_of_row(packed, scales, element, is_whole, is_aligned, words[o], pairs[o]);
        }
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            if (half == 1 && !is_whole) break;
            float inner[OUTPUTS][INPUTS] = {};
#pragma unroll
            for (u32 quarter = 0; quarter < 2; quarter++) {
                float weights[OUTPUTS][8];
#pragma unroll
                for (u32 o = 0; o < OUTPUTS; o++) {
                    const u32 parts[4] = {words[o].x, words[o].y, words[o].z, words[o].w};
                    decode(parts[2 * half + quarter], weights[o]);
                }
#pragma unroll
                for (u32 i = 0; i < INPUTS; i++) {
                    const u32 row = first_input + i < rows ? first_input + i : 0;
                    float values[8];
                    load_activations<T>(x + u64(row) * in_features + k + half * GROUP + quarter * 8, values);
#pragma unroll
                    for (u32 j = 0; j < 8; j++) {
#pragma unroll
                        for (u32 o = 0; o < OUTPUTS; o++) {
                            inner[o][i] = accumulate<T>(inner[o][i], values[j], weights[o][j]);
                        }
                    }
                }
            }
#pragma unroll
            for (u32 o = 0; o < OUTPUTS; o++) {
                const float scale = e4m3_value(pairs[o] >> 8 * half & 0xff);
#pragma unroll
                for (u32 i = 0; i < INPUTS; i++) acc[o][i] = __fadd_rn(acc[o][i], __fmul_rn(inner[o][i], scale));
            }
        }
    }
    const float global = *global_scale;
#pragma unroll
    for (u32 o = 0; o < OUTPUTS; o++) {
#pragma unroll
        for (u32 i = 0; i < INPUTS; i++) {
            const float sum = sum_of_lanes(acc[o][i]);
            const bool is_mine = lane == 0 && first_output + o < out_features && first_input + i < rows;
            if (is_mine) y[u64(first_input + i) * out_features + first_output + o] = T::round(__fmul_rn(sum, global));
        }
    }
}

// Groups of weights under one E4M3 each.
template <typename T>
struct Grouped {
    // The scales of a run.
    typedef u16 Scale;
    typedef u32 Factor;
    const u8* scales;
    float global;

    // E2M1 is exact in fp16, and one instruction makes an f32 of each half of a pair.
    MEMBER u32 table_values(u32 byte) const {
        float values[8];
        decode(byte, values);
        return Fp16::round_pair(values[0], values[1]);
    }
    MEMBER const u16* scales_from(u64 start) const { return reinterpret_cast<const u16*>(scales + start / GROUP); }
    MEMBER u32 scales_before(u32 element) const { return element / RUN; }
    DEVICE u32 factor(u16 pair) { return pair; }
    template <u32 ROWS>
    DEVICE void accumulate(float* acc, u32 own, const uint4* words, const u32* factors, const uint4* vectors) {
        float scales[ROWS][2];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) e4m3_values(factors[r], scales[r]);
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            float inner[ROWS] = {};
#pragma unroll
            for (u32 i = 2 * half; i < 2 * half + 2; i++) {
                const u32 pairs[4] = {vectors[i].x, vectors[i].y, vectors[i].z, vectors[i].w};
#pragma unroll
                for (u32 r = 0; r < ROWS; r++) {
                    const u32 parts[4] = {words[r].x, words[r].y, words[r].z, words[r].w};
#pragma unroll
                    for (u32 j = 0; j < 4; j++) {
                        const u32 weights = look_up(line_of(parts[i], j, own));
                        inner[r] = ::accumulate<T>(inner[r], T::low(pairs[j]), Fp16::low(weights));
                        inner[r] = ::accumulate<T>(inner[r], T::high(pairs[j]), Fp16::high(weights));
                    }
                }
            }
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) acc[r] = __fadd_rn(acc[r], __fmul_rn(inner[r], scales[r][half]));
        }
    }
    MEMBER u16 finish(float sum) const { return T::round(__fmul_rn(sum, global)); }
};

#define NVFP4(format, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                 \
        nvfp4_dequantize_##format(const u32* packed, const u8* scales, const float* global_scale, T::Word* y,         \
                                  u64 octets) {                                                                       \
        dequantize<T>(packed, scales, global_scale, y, octets);                                                       \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(128)                                                                 \
        nvfp4_product_##format##_1(const T::Word* x, const u8* packed, const u8* scales, const float* global_scale,   \
                                   T::Word* y, u32 in_features, u32 out_features, u32 rows) {                         \
        product<T, 4, 1>(x, packed, scales, global_scale, y, in_features, out_features, rows);                        \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(128)                                                                 \
        nvfp4_product_##format##_8(const T::Word* x, const u8* packed, const u8* scales, const float* global_scale,   \
                                   T::Word* y, u32 in_features, u32 out_features, u32 rows) {                         \
        product<T, 2, 8>(x, packed, scales, global_scale, y, in_features, out_features, rows);                        \
    }

#define NVFP4_GEMV(format, T)                                                                                         \
    extern "C" __global__ void __launch_bounds__(512, 2)                                                              \
        nvfp4_gemv_##format(const u16* x, const u8* packed, const u8* scales, const float* global_scale, u16* y,      \
                            u32 in_features, u32 out_features, u32 rows) {                                            \
        gemv_tuned(Grouped<T>{scales, *global_scale}, x, packed, y, in_features, out_features);                       \
    }

NVFP4(fp32, Fp32)
NVFP4(bf16, Bf16)
NVFP4(fp16, Fp16)
NVFP4_GEMV(bf16, Bf16)
NVFP4_GEMV(fp16, Fp16)
