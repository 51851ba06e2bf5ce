// The tuned product of one row of activations and a packed weight, for every format that keeps two weights in a byte.
//
// Lane l of a warp takes the elements 32 l to 32 l + 31 of every 1024, in order; a tree of shuffles adds the lanes.
// in_features is a multiple of 512 from 1024 to 16384. What a byte and a scale mean is said by `Weights`:
//
// Scale                     what lies in memory once for each block or run
// Factor                    what a run is multiplied by
// table_values(byte)        the two weights of a byte, as it likes
// scales_from(start)        where the scales of a row begin, by its first element
// scales_before(element)    how many of them come before an element of the row
// factor(scale)
// accumulate<ROWS>(acc, own, words, factors, vectors)   adds a run of each row
// finish(sum)               the output in T
#pragma once
#include "numbers.cuh"

constexpr u32 RUN = 32;
constexpr u32 CHUNK = WARP * RUN;

// Lane 0 gets the sum: neighbours first.
DEVICE float sum_of_lanes(float acc) {
#pragma unroll
    for (u32 distance = 1; distance < WARP; distance *= 2) {
        acc = __fadd_rn(acc, __shfl_down_sync(FULL_WARP, acc, distance));
    }
    return acc;
}

constexpr u32 TUNED_WARPS = 16;
constexpr u32 TUNED_ROWS = 2;
// Shared memory is 256 lines of 256 bytes. The first half of line b holds the two table values of byte b of packed
// weights, once for each lane; the second halves hold the activations. So one permutation of bytes makes an address, and
// no two lanes meet in a bank.
constexpr u32 LINES = 256;
constexpr u32 LINE_BYTES = 256;
constexpr u32 ACTIVATIONS_AT = 128;
constexpr u32 VECTORS_PER_LINE = 8;
// The lines begin at this address of the shared window, whatever lies before them, so that a look-up has it as an
// immediate. Dynamic shared memory begins at 0, or at 1024 where the system keeps the first KiB; the launch asks for so
// much more.
constexpr u32 LINES_AT = 1024;

// Volatile, so that it stays behind the barrier after the tables were written.
DEVICE u32 look_up(u32 line) {
    u32 values;
    asm volatile("ld.shared.u32 %0, [%1+1024];" : "=r"(values) : "r"(line));
    return values;
}

// The address of a line: byte `i` of the packed weights names the line, `own` is the lane's place in it.
DEVICE u32 line_of(u32 word, u32 i, u32 own) { return __byte_perm(word, own, 0x5504 | i << 4); }

// Where vector `i` of the activations lies.
DEVICE u32 place(u32 i) { return i / VECTORS_PER_LINE * LINE_BYTES + ACTIVATIONS_AT + i % VECTORS_PER_LINE * 16; }

// The look-up tables and the activations to shared memory.
template <typename Weights>
DEVICE void fill_lines(const Weights& weights, u8* lines, const u16* x, u32 in_features) {
    for (u32 i = threadIdx.x; i < LINES * WARP; i += blockDim.x) {
        const u32 byte = i / WARP;
        *reinterpret_cast<u32*>(lines + byte * LINE_BYTES + i % WARP * 4) = weights.table_values(byte);
    }
    for (u32 i = threadIdx.x; i < in_features / 8; i += blockDim.x) {
        const u32 chunk = i / (CHUNK / 8), lane = i / 4 % WARP, quarter = i % 4;
        const uint4 vector = reinterpret_cast<const uint4*>(x)[i];
        *reinterpret_cast<uint4*>(lines + place((chunk * 4 + quarter) * WARP + lane)) = vector;
    }
    __syncthreads();
}

// The 32 activations that a lane meets in a chunk; `place_of_lane` is where it finds the first eight of the first chunk.
DEVICE void load_run(const u8* place_of_lane, u32 chunk, uint4* vectors) {
    constexpr u32 STEP = WARP / VECTORS_PER_LINE * LINE_BYTES;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        vectors[i] = *reinterpret_cast<const uint4*>(place_of_lane + chunk * 4 * STEP + i * STEP);
    }
}

// Every thread block walks over pairs of rows until there are none left. What the next step works on is always on its
// way, also over the end of a row. Where half a chunk is left at the end of a row, one half of the warp takes it for the
// first row and the other half, with the sums of the first half's lanes, for the second.
template <typename Weights>
DEVICE void gemv_tuned(const Weights& weights, const u16* x, const u8* packed, u16* y, u32 in_features,
                       u32 out_features) {
    typedef typename Weights::Scale Scale;
    typedef typename Weights::Factor Factor;
    extern __shared__ uint4 shared[];
    const u32 begin = u32(__cvta_generic_to_shared(shared));
    if (begin > LINES_AT) __trap();
    u8* lines = reinterpret_cast<u8*>(shared) + (LINES_AT - begin);
    fill_lines(weights, lines, x, in_features);
    const u32 lane = threadIdx.x % WARP, half_lane = lane % (WARP / 2);
    const bool is_upper = lane >= WARP / 2;
    const u32 own = lane * 4;
    const u32 full = in_features / CHUNK;
    const bool has_half = in_features % CHUNK != 0;
    // Where the first row of the pair begins, and how many elements after it the second one does: fewer registers than
    // two pairs of pointers, which do not fit on every architecture.
    const u8* first_row;
    const Scale* first_scale;
    u32 distance;
    uint4 next[TUNED_ROWS];
    Scale next_scale[TUNED_ROWS];
    const auto aim = [&](u32 row) {
        const u64 start = u64(min(row, out_features - 1)) * in_features;
        first_row = packed + start / 2;
        first_scale = weights.scales_from(start);
        // A row too many computes the last one again and is not stored.
        distance = row + 1 < out_features ? in_features : 0;
    };
    const auto fetch = [&](u32 chunk) {
        const u32 k = chunk * CHUNK + lane * RUN;
#pragma unroll
        for (u32 r = 0; r < TUNED_ROWS; r++) {
            const u32 element = k + r * distance;
            next[r] = __ldcs(reinterpret_cast<const uint4*>(first_row + element / 2));
            next_scale[r] = __ldcs(first_scale + weights.scales_before(element));
        }
    };
    const auto fetch_half = [&]() {
        const u32 element = full * CHUNK + half_lane * RUN + (is_upper ? distance : 0);
        next[0] = __ldcs(reinterpret_cast<const uint4*>(first_row + element / 2));
        next_scale[0] = __ldcs(first_scale + weights.scales_before(element));
    };
    const u32 stride = gridDim.x * TUNED_WARPS * TUNED_ROWS;
    u32 row = (blockIdx.x * TUNED_WARPS + threadIdx.x / WARP) * TUNED_ROWS;
    if (row >= out_features) return;
    aim(row);
    fetch(0);
    for (; row < out_features; row += stride) {
        float acc[TUNED_ROWS] = {};
        uint4 vectors[4];
        for (u32 chunk = 0; chunk < full; chunk++) {
            const uint4 words[TUNED_ROWS] = {next[0], next[1]};
            const Factor factors[TUNED_ROWS] = {Weights::factor(next_scale[0]), Weights::factor(next_scale[1])};
            if (chunk + 1 < full) {
                fetch(chunk + 1);
            } else if (has_half) {
                fetch_half();
            } else {
                aim(row + stride);
                fetch(0);
            }
            load_run(lines + place(lane), chunk, vectors);
            Weights::template accumulate<TUNED_ROWS>(acc, own, words, factors, vectors);
        }
        if (has_half) {
            const uint4 words = next[0];
            const Factor factor = Weights::factor(next_scale[0]);
            aim(row + stride);
            fetch(0);
            load_run(lines + place(half_lane), full, vectors);
            const float moved = __shfl_sync(FULL_WARP, acc[1], half_lane);
            float tail = is_upper ? moved : acc[0];
            Weights::template accumulate<1>(&tail, own, &words, &factor, vectors);
            const float back = __shfl_sync(FULL_WARP, tail, half_lane + WARP / 2);
            if (!is_upper) acc[0] = tail, acc[1] = back;
        }
#pragma unroll
        for (u32 r = 0; r < TUNED_ROWS; r++) {
            const float sum = sum_of_lanes(acc[r]);
            if (lane == 0 && row + r < out_features) y[row + r] = weights.finish(sum);
        }
    }
}
