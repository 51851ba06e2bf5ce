// Code books of the 4-bit formats: twin codebook.rs.
//
// The thresholds are f32 literals, as the reference kernels spell them. On four of the NF4 thresholds that is one unit
// in the last place beside the exact midpoint, and a GPU decides a value that lies there accordingly.
#pragma once
#include "numbers.cuh"

struct Nf4 {
    // The table that a kernel copies to shared memory; the same with and without the sign of zero.
    DEVICE float value(u32 index) {
        const float table[16] = {-1.0f,
                                 -0.6961928009986877f,
                                 -0.5250730514526367f,
                                 -0.39491748809814453f,
                                 -0.28444138169288635f,
                                 -0.18477343022823334f,
                                 -0.09105003625154495f,
                                 0.0f,
                                 0.07958029955625534f,
                                 0.16093020141124725f,
                                 0.24611230194568634f,
                                 0.33791524171829224f,
                                 0.44070982933044434f,
                                 0.5626170039176941f,
                                 0.7229568362236023f,
                                 1.0f};
        return table[index];
    }

    // How many thresholds lie strictly below; NaN takes the lower side everywhere and gives 0.
    DEVICE u32 index(float x) {
        if (x > 0.03979014977812767f) {
            if (x > 0.3893125355243683f) {
                if (x > 0.6427869200706482f) return x > 0.8614784181118011f ? 15 : 14;
                return x > 0.5016634166240692f ? 13 : 12;
            }
            if (x > 0.2035212516784668f) return x > 0.2920137718319893f ? 11 : 10;
            return x > 0.1202552504837513f ? 9 : 8;
        }
        if (x > -0.33967943489551544f) {
            if (x > -0.13791173323988914f) return x > -0.045525018125772476f ? 7 : 6;
            return x > -0.23460740596055984f ? 5 : 4;
        }
        if (x > -0.6106329262256622f) return x > -0.4599952697753906f ? 3 : 2;
        return x > -0.8480964004993439f ? 1 : 0;
    }

    // The same without branches: each step selects the threshold of the next one.
    DEVICE u32 index_by_selection(float x) {
        const bool a = x > 0.03979014977812767f;
        const bool b = x > (a ? 0.3893125355243683f : -0.33967943489551544f);
        const float upper = b ? 0.6427869200706482f : 0.2035212516784668f;
        const float lower = b ? -0.13791173323988914f : -0.6106329262256622f;
        const bool c = x > (a ? upper : lower);
        const float upper_high = c ? 0.8614784181118011f : 0.5016634166240692f;
        const float upper_low = c ? 0.2920137718319893f : 0.1202552504837513f;
        const float lower_high = c ? -0.045525018125772476f : -0.23460740596055984f;
        const float lower_low = c ? -0.4599952697753906f : -0.8480964004993439f;
        const float last = a ? (b ? upper_high : upper_low) : (b ? lower_high : lower_low);
        const bool d = x > last;
        return (a ? 8 : 0) + (b ? 4 : 0) + (c ? 2 : 0) + (d ? 1 : 0);
    }
};

struct Fp4 {
    // As the dequantise kernel holds it: index 8 is -0.
    DEVICE float value(u32 index) {
        const float table[8] = {0.0f,         0.0625f / 12.0f, 8.0f / 12.0f, 1.0f,
                                4.0f / 12.0f, 6.0f / 12.0f,    2.0f / 12.0f, 3.0f / 12.0f};
        const float magnitude = table[index & 7];
        return index & 8 ? -magnitude : magnitude;
    }

    // Sign and magnitude; a tie goes to the smaller magnitude, -0 and NaN give 0.
    DEVICE u32 index(float x) {
        const u32 sign = x < 0.0f ? 8 : 0;
        const float magnitude = fabsf(x);
        if (magnitude > 0.29166667f) {
            if (magnitude > 0.583333f) return sign + (magnitude > 0.8333333f ? 3 : 2);
            return sign + (magnitude > 0.4166667f ? 5 : 4);
        }
        if (magnitude > 0.0859375f) return sign + (magnitude > 0.20833333f ? 7 : 6);
        return sign + (magnitude > 0.00260417f ? 1 : 0);
    }

    DEVICE u32 index_by_selection(float x) {
        const float magnitude = fabsf(x);
        const bool a = magnitude > 0.29166667f;
        const bool b = magnitude > (a ? 0.583333f : 0.0859375f);
        const float upper = b ? 0.8333333f : 0.4166667f;
        const float lower = b ? 0.20833333f : 0.00260417f;
        const bool c = magnitude > (a ? upper : lower);
        // The magnitude indices 0 1 6 7 4 5 2 3 in one word, four bits each.
        const u32 count = (a ? 4 : 0) + (b ? 2 : 0) + (c ? 1 : 0);
        return (x < 0.0f ? 8 : 0) + (0x32547610u >> (4 * count) & 7);
    }
};
