// Products of several rows: twin matmul_4bit.rs.
//
// x rows x in_features of T; y rows x out_features of T; f32 sums in an order of their own.
//
// `matmul_dense_*` is the plain product with a weight already in T (out_features x in_features), where no cuBLAS is
// installed. `matmul_4bit_*` (set `tuned`) decodes the packed weight on the way to the tensor cores:
// w = T(f32(table[i] * absmax)), the bits that the detour over a dense weight gives.
#include "codebook.cuh"

constexpr u32 DENSE_WARPS = 4;
constexpr u32 TILE_ROWS = 8;

// One output column a warp, eight rows of x at a time.
template <typename T>
DEVICE void matmul_dense(const typename T::Word* x, const typename T::Word* weight, typename T::Word* y, u32 rows,
                         u32 in_features, u32 out_features) {
    const u32 lane = threadIdx.x % WARP;
    const u32 column = blockIdx.x * DENSE_WARPS + threadIdx.x / WARP;
    const u32 first = blockIdx.y * TILE_ROWS;
    if (column >= out_features) return;
    const u64 start = u64(column) * in_features;
    float sums[TILE_ROWS] = {};
    for (u32 k = lane; k < in_features; k += WARP) {
        const float w = T::widen(weight[start + k]);
#pragma unroll
        for (u32 r = 0; r < TILE_ROWS; r++) {
            if (first + r < rows) sums[r] = __fmaf_rn(T::widen(x[u64(first + r) * in_features + k]), w, sums[r]);
        }
    }
#pragma unroll
    for (u32 r = 0; r < TILE_ROWS; r++) {
        for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
            sums[r] += __shfl_down_sync(FULL_WARP, sums[r], distance);
        }
        if (lane == 0 && first + r < rows) y[u64(first + r) * out_features + column] = T::round(sums[r]);
    }
}

constexpr u32 FUSED_WARPS = 8;
constexpr u32 FUSED_COLUMNS = 32;
constexpr u32 FUSED_K = 128;
// Look-up entries: two table values for each byte of packed weights, once for every lane of half a warp.
constexpr u32 LOOKUP_COPIES = 16;
constexpr u32 LOOKUP_FLOATS = 256 * LOOKUP_COPIES * 2;

#define MMA(T, ptx)                                                                                                   \
    DEVICE void multiply_accumulate(T, float* d, const u32* a, const u32* b) {                                        \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." ptx "." ptx ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "       \
            "{%0,%1,%2,%3};"                                                                                          \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                          \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                      \
    }
MMA(Bf16, "bf16")
MMA(Fp16, "f16")

// Two decoded weights of a byte.
template <typename T>
DEVICE u32 decode(const float2* lookup, u32 byte, float scale) {
    const float2 values = lookup[byte * LOOKUP_COPIES];
    return T::round_pair(multiply_flushed(values.x, scale), multiply_flushed(values.y, scale));
}

DEVICE u32 component(const uint4& words, u32 i) { return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w; }

// A thread block takes 32 columns of the output at a time, its warps every eighth piece of 128 along k; the partial sums
// meet in shared memory. The order of k inside a piece is the same for both operands and otherwise free, so that a lane
// keeps 32 neighbouring weights of a column: one 16-byte load.
template <typename Book, typename T>
DEVICE void matmul_fused(const u16* x, const u8* packed, const float* absmax, u16* y, u32 rows, u32 in_features,
                         u32 out_features, u32 blocksize_log2) {
    extern __shared__ uint4 shared[];
    float2* lookup = reinterpret_cast<float2*>(shared);
    float* partial = reinterpret_cast<float*>(shared) + LOOKUP_FLOATS;
    uint4* activations = reinterpret_cast<uint4*>(partial + FUSED_WARPS * FUSED_COLUMNS * TILE_ROWS);
    const u32 first_row = blockIdx.y * TILE_ROWS;
    for (u32 i = threadIdx.x; i < 256 * LOOKUP_COPIES; i += blockDim.x) {
        const u32 byte = i / LOOKUP_COPIES;
        lookup[i] = make_float2(Book::value(byte >> 4), Book::value(byte & 15));
    }
    // Vector v of lane (g, t) in piece p: eight activations of row g at 128 p + 32 t + 8 v.
    const u32 vectors = in_features / 8;
    for (u32 i = threadIdx.x; i < vectors * TILE_ROWS; i += blockDim.x) {
        const u32 row = i / vectors, at = i % vectors;
        const u32 piece = at / 16, t = at / 4 % 4, v = at % 4;
        const bool there = first_row + row < rows;
        const uint4 zero = make_uint4(0, 0, 0, 0);
        const uint4* source = reinterpret_cast<const uint4*>(x + u64(first_row + row) * in_features);
        activations[(piece * 4 + v) * WARP + row * 4 + t] = there ? source[at] : zero;
    }
    __syncthreads();
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
    const float2* lookup_of_lane = lookup + lane % LOOKUP_COPIES;
    const u32 pieces = in_features / FUSED_K;
    for (u32 column = blockIdx.x * FUSED_COLUMNS; column < out_features; column += gridDim.x * FUSED_COLUMNS) {
        float sums[2][4] = {};
        u64 starts[4];
        uint4 next[4];
        float next_scale[4];
        const auto fetch = [&](u32 c, u32 piece) {
            next[c] = __ldcs(reinterpret_cast<const uint4*>(packed + (starts[c] + piece * FUSED_K) / 2));
            next_scale[c] = __ldcs(absmax + ((starts[c] + piece * FUSED_K) >> blocksize_log2));
        };
#pragma unroll
        for (u32 c = 0; c < 4; c++) {
            starts[c] = u64(min(column + g + 8 * c, out_features - 1)) * in_features + t * 32;
            if (warp < pieces) fetch(c, warp);
        }
        for (u32 piece = warp; piece < pieces; piece += FUSED_WARPS) {
            uint4 words[4];
            float scales[4];
#pragma unroll
            for (u32 c = 0; c < 4; c++) {
                words[c] = next[c];
                scales[c] = next_scale[c];
                if (piece + FUSED_WARPS < pieces) fetch(c, piece + FUSED_WARPS);
            }
#pragma unroll
            for (u32 v = 0; v < 4; v++) {
                const uint4 b = activations[(piece * 4 + v) * WARP + lane];
#pragma unroll
                for (u32 half = 0; half < 2; half++) {
                    const u32 operand[2] = {half == 0 ? b.x : b.z, half == 0 ? b.y : b.w};
#pragma unroll
                    for (u32 tile = 0; tile < 2; tile++) {
                        const u32 upper = component(words[2 * tile], v) >> (16 * half);
                        const u32 lower = component(words[2 * tile + 1], v) >> (16 * half);
                        const u32 weights[4] = {decode<T>(lookup_of_lane, upper & 255, scales[2 * tile]),
                                                decode<T>(lookup_of_lane, lower & 255, scales[2 * tile + 1]),
                                                decode<T>(lookup_of_lane, upper >> 8 & 255, scales[2 * tile]),
                                                decode<T>(lookup_of_lane, lower >> 8 & 255, scales[2 * tile + 1])};
                        multiply_accumulate(T(), sums[tile], weights, operand);
                    }
                }
            }
        }
        // d[0], d[1]: column g, rows 2t and 2t + 1; d[2], d[3]: column g + 8.
        float* own = partial + warp * FUSED_COLUMNS * TILE_ROWS;
#pragma unroll
        for (u32 tile = 0; tile < 2; tile++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                own[(2 * t + i % 2) * FUSED_COLUMNS + 16 * tile + 8 * (i / 2) + g] = sums[tile][i];
            }
        }
        __syncthreads();
        const u32 row = threadIdx.x / FUSED_COLUMNS, offset = threadIdx.x % FUSED_COLUMNS;
        float sum = 0.0f;
#pragma unroll
        for (u32 w = 0; w < FUSED_WARPS; w++) sum += partial[w * FUSED_COLUMNS * TILE_ROWS + threadIdx.x];
        if (first_row + row < rows && column + offset < out_features) {
            y[u64(first_row + row) * out_features + column + offset] = T::round(sum);
        }
        __syncthreads();
    }
}

#define DENSE(format, T)                                                                                              \
    extern "C" __global__ void __launch_bounds__(128)                                                                 \
        matmul_dense_##format(const T::Word* x, const T::Word* weight, T::Word* y, u32 rows, u32 in_features,         \
                              u32 out_features) {                                                                     \
        matmul_dense<T>(x, weight, y, rows, in_features, out_features);                                               \
    }

#define FUSED(book, Book, format, T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                              \
        matmul_4bit_##book##_##format(const u16* x, const u8* packed, const float* absmax, u16* y, u32 rows,          \
                                      u32 in_features, u32 out_features, u32 blocksize_log2) {                        \
        matmul_fused<Book, T>(x, packed, absmax, y, rows, in_features, out_features, blocksize_log2);                 \
    }

DENSE(fp32, Fp32)
DENSE(bf16, Bf16)
DENSE(fp16, Fp16)
FUSED(nf4, Nf4, bf16, Bf16)
FUSED(nf4, Nf4, fp16, Fp16)
FUSED(fp4, Fp4, bf16, Bf16)
FUSED(fp4, Fp4, fp16, Fp16)
