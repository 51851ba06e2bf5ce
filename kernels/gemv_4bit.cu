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

template <typename T>
DEVICE float accumulate_byte(float acc, u32 line, u32 s, u32 x) {
    const u32 q = look_up(line);
    const u32 product = T::multiply_pair(x, T::multiply_pair(q, s));
    return add_flushed(add_flushed(acc, T::low(product)), T::high(product));
}

// The address of a line: byte `i` of the packed weights names the line, `own` is the lane's place in it.
DEVICE u32 line_of(u32 word, u32 i, u32 own) { return __byte_perm(word, own, 0x5504 | i << 4); }

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

// Where vector `i` of the activations lies.
DEVICE u32 place(u32 i) { return i / VECTORS_PER_LINE * LINE_BYTES + ACTIVATIONS_AT + i % VECTORS_PER_LINE * 16; }

// The look-up tables and the activations to shared memory.
template <typename T>
DEVICE void fill_lines(u8* lines, const float* code, const u16* x, u32 in_features) {
    for (u32 i = threadIdx.x; i < LINES * WARP; i += blockDim.x) {
        const u32 byte = i / WARP;
        const u32 values = T::round_pair(code[byte >> 4], code[byte & 15]);
        *reinterpret_cast<u32*>(lines + byte * LINE_BYTES + i % WARP * 4) = values;
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
template <typename T>
DEVICE void gemv_tuned(const u16* x, const u8* packed, const float* absmax, const float* code, u16* y, u32 in_features,
                       u32 out_features, u32 blocksize_log2) {
    extern __shared__ uint4 shared[];
    const u32 begin = u32(__cvta_generic_to_shared(shared));
    if (begin > LINES_AT) __trap();
    u8* lines = reinterpret_cast<u8*>(shared) + (LINES_AT - begin);
    fill_lines<T>(lines, code, x, in_features);
    const u32 lane = threadIdx.x % WARP, half_lane = lane % (WARP / 2);
    const bool is_upper = lane >= WARP / 2;
    const u32 own = lane * 4;
    const u32 full = in_features / CHUNK;
    const bool has_half = in_features % CHUNK != 0;
    // Where the first row of the pair begins, and how many elements after it the second one does: fewer registers than
    // two pairs of pointers, which do not fit on every architecture.
    const u8* first_row;
    const float* first_scale;
    u32 distance;
    uint4 next[TUNED_ROWS];
    float next_scale[TUNED_ROWS];
    const auto aim = [&](u32 row) {
        const u64 start = u64(min(row, out_features - 1)) * in_features;
        first_row = packed + start / 2;
        first_scale = absmax + (start >> blocksize_log2);
        // A row too many computes the last one again and is not stored.
        distance = row + 1 < out_features ? in_features : 0;
    };
    const auto fetch = [&](u32 chunk) {
        const u32 k = chunk * CHUNK + lane * RUN;
#pragma unroll
        for (u32 r = 0; r < TUNED_ROWS; r++) {
            const u32 element = k + r * distance;
            next[r] = __ldcs(reinterpret_cast<const uint4*>(first_row + element / 2));
            next_scale[r] = __ldcs(first_scale + (element >> blocksize_log2));
        }
    };
    const auto fetch_half = [&]() {
        const u32 element = full * CHUNK + half_lane * RUN + (is_upper ? distance : 0);
        next[0] = __ldcs(reinterpret_cast<const uint4*>(first_row + element / 2));
        next_scale[0] = __ldcs(first_scale + (element >> blocksize_log2));
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
            const u32 s[TUNED_ROWS] = {T::round_pair(next_scale[0], next_scale[0]), T::round_pair(next_scale[1], next_scale[1])};
            if (chunk + 1 < full) {
                fetch(chunk + 1);
            } else if (has_half) {
                fetch_half();
            } else {
                aim(row + stride);
                fetch(0);
            }
            load_run(lines + place(lane), chunk, vectors);
#pragma unroll
            for (u32 r = 0; r < TUNED_ROWS; r++) acc[r] = accumulate_run<T>(acc[r], own, words[r], s[r], vectors);
        }
        if (has_half) {
            const uint4 words = next[0];
            const u32 s = T::round_pair(next_scale[0], next_scale[0]);
            aim(row + stride);
            fetch(0);
            load_run(lines + place(half_lane), full, vectors);
            const float moved = __shfl_sync(FULL_WARP, acc[1], half_lane);
            const float tail = accumulate_run<T>(is_upper ? moved : acc[0], own, words, s, vectors);
            const float back = __shfl_sync(FULL_WARP, tail, half_lane + WARP / 2);
            if (!is_upper) acc[0] = tail, acc[1] = back;
        }
#pragma unroll
        for (u32 r = 0; r < TUNED_ROWS; r++) {
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
