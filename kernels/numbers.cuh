// Number formats and the f32 habits of the reference kernels, spelled as single instructions.
//
// Nothing here depends on compiler flags: what is flushed says `.ftz`, what is rounded says how, and no two operations
// can be contracted into one. NVRTC brings no <stdint.h> and none is needed.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__

constexpr float FLOAT_MAX = 3.402823466e+38f;
constexpr u32 WARP = 32;
constexpr u32 FULL_WARP = 0xffffffffu;

DEVICE float multiply_flushed(float a, float b) {
    float product;
    asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    return product;
}

DEVICE float add_flushed(float a, float b) {
    float sum;
    asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
    return sum;
}

DEVICE float fma_flushed(float a, float b, float c) {
    float result;
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
    return result;
}

// The larger of two, NaN ignored, subnormals flushed.
DEVICE float max_flushed(float a, float b) {
    float larger;
    asm("max.ftz.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

// The approximate reciprocal of fast math: within one unit in the last place, 0 gives infinity.
DEVICE float reciprocal_flushed(float a) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(a));
    return result;
}

// The formats. `Word` is how a value lies in memory; `multiply` rounds once to the format and keeps subnormals.
struct Fp32 {
    typedef float Word;
    DEVICE float widen(Word value) { return value; }
    DEVICE Word round(float value) { return value; }
};

struct Bf16 {
    typedef u16 Word;
    DEVICE float widen(Word value) { return __uint_as_float(u32(value) << 16); }
    DEVICE Word round(float value) {
        u16 word;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(word) : "f"(value));
        return word;
    }
    DEVICE Word multiply(Word a, Word b) {
        u16 product;
        // mul.bf16 begins with sm_90; adding -0 changes no bit of a product.
        asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(product) : "h"(a), "h"(b), "h"(u16(0x8000)));
        return product;
    }
    DEVICE u32 multiply_pair(u32 a, u32 b) {
        u32 product;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
        return product;
    }
    // Two values side by side, each rounded once.
    DEVICE u32 round_pair(float low, float high) {
        u32 pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    }
    DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
    DEVICE float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
};

struct Fp16 {
    typedef u16 Word;
    DEVICE float widen(Word value) {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
        return wide;
    }
    DEVICE Word round(float value) {
        u16 word;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(word) : "f"(value));
        return word;
    }
    DEVICE Word multiply(Word a, Word b) {
        u16 product;
        asm("mul.rn.f16 %0, %1, %2;" : "=h"(product) : "h"(a), "h"(b));
        return product;
    }
    DEVICE u32 multiply_pair(u32 a, u32 b) {
        u32 product;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
        return product;
    }
    DEVICE u32 round_pair(float low, float high) {
        u32 pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    }
    DEVICE float low(u32 pair) { return widen(u16(pair)); }
    DEVICE float high(u32 pair) { return widen(u16(pair >> 16)); }
};
