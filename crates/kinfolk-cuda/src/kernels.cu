// Kernels that train one network per client, all clients of a batch at once. Shapes are compiled in: `program.rs` puts a definition of
// every layer behind this text, and one kernel for each thing a layer does. R is the number of rows of a slot that go
// through the network together, WIDTH the number of parameters, STRIDE the distance of two slots' parameters.
//
// A slot is a client with its own parameters. Sums run in a fixed order that follows from R and the shapes, whatever the number of
// slots.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

// Rows that go through the network together: a place in the order, how many, of how many in the step, whether they are its first.
struct Entry { u32 begin, count, of, first; };

struct Args {
    float* const* params;
    const float* const* sources;
    const Entry* entries;
    const u32* offsets;
    const u32* order;
    const void* rows;
    const u32* classes;
    const float* values;
    float* outputs[MOST_LAYERS];
    float* slopes[MOST_LAYERS];
    u8* places[MOST_LAYERS];
    float* partials[MOST_LAYERS];
    float* gradient;
    float* first;
    float* second;
    float* average;
    const float* const* centres;
    const float* const* tilts;
    double* losses;
    u32* hits;
    float* row_losses;
    float strengths[MOST_PULLS];
    u32 frozen[2 * MOST_FROZEN];
    u32 pulls, freezes, kind, fused;
    float length, momentum, decay, rate, floor, share, smoothing;
    u32 micro, notes;
};

__device__ __forceinline__ Entry entry_of(const Args& a, u32 slot) { return a.entries[a.offsets[slot] + a.micro]; }

// What becomes of a parameter and its gradient in a step.
__device__ __forceinline__ float stepped(const Args& a, u32 slot, u32 i, float p, float g) {
    for (u32 k = 0; k < a.pulls; ++k) g += a.strengths[k] * (p - a.centres[slot * a.pulls + k][i]);
    if (a.tilts) g += a.tilts[slot][i];
    for (u32 f = 0; f < a.freezes; ++f) {
        if (i >= a.frozen[2 * f] && i < a.frozen[2 * f + 1]) return p;
    }
    u64 at = (u64)slot * STRIDE + i;
    if (a.kind == 0) return p - a.length * g;
    if (a.kind == 1) {
        float v = a.momentum * a.first[at] + g + a.decay * p;
        a.first[at] = v;
        return p - a.length * v;
    }
    g += a.decay * p;
    float m = 0.9f * a.first[at] + 0.1f * g;
    float v = 0.999f * a.second[at] + 0.001f * g * g;
    a.first[at] = m;
    a.second[at] = v;
    return p - a.rate * m / (sqrtf(v) + a.floor);
}

// Takes a gradient: a plain step at once, or one more part of the gradient.
__device__ __forceinline__ void take(const Args& a, u32 slot, u32 first, u32 i, float g) {
    if (a.fused) {
        a.params[slot][i] -= a.length * g;
    } else {
        float* to = a.gradient + (u64)slot * STRIDE + i;
        *to = first ? g : *to + g;
    }
}

template <int V>
__device__ __forceinline__ void take_several(const Args& a, u32 slot, u32 first, u32 i, const float (&g)[V]) {
    if (V == 4) {
        float* to = a.fused ? a.params[slot] + i : a.gradient + (u64)slot * STRIDE + i;
        float4 p = make_float4(0, 0, 0, 0);
        if (a.fused || !first) p = *(float4*)to;
        if (a.fused) {
            p = make_float4(p.x - a.length * g[0], p.y - a.length * g[1], p.z - a.length * g[2], p.w - a.length * g[3]);
        } else {
            p = make_float4(p.x + g[0], p.y + g[1], p.z + g[2], p.w + g[3]);
        }
        *(float4*)to = p;
    } else {
        for (int v = 0; v < V; ++v) take(a, slot, first, i + v, g[v]);
    }
}

template <int V>
__device__ __forceinline__ void load(float (&out)[V], const float* from) {
    if (V == 4) {
        float4 x = *(const float4*)from;
        out[0] = x.x; out[1 % V] = x.y; out[2 % V] = x.z; out[3 % V] = x.w;
    } else {
        for (int v = 0; v < V; ++v) out[v] = from[v];
    }
}

// Every slot's own copy of the parameters that it begins with.
__device__ __forceinline__ void copy_starts(const Args& a) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, slot = blockIdx.z;
    if (i < WIDTH) a.params[slot][i] = a.sources[slot][i];
}

// A step along gradients that were added up.
__device__ __forceinline__ void apply_gradient(const Args& a) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, slot = blockIdx.z;
    if (i >= WIDTH) return;
    float* p = a.params[slot] + i;
    *p = stepped(a, slot, i, *p, a.gradient[(u64)slot * STRIDE + i]);
}

__device__ __forceinline__ void average_models(const Args& a) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, slot = blockIdx.z;
    if (i >= WIDTH) return;
    float* mean = a.average + (u64)slot * STRIDE + i;
    *mean += a.share * (a.params[slot][i] - *mean);
}

// The rows of a batch as numbers, channels last.
template <class X, int CHANNELS, int PIXELS>
__device__ __forceinline__ void gather(const Args& a) {
    u32 row = blockIdx.x, slot = blockIdx.z;
    Entry e = entry_of(a, slot);
    if (row >= e.count) return;
    const X* from = (const X*)a.rows + (u64)a.order[e.begin + row] * (CHANNELS * PIXELS);
    float* to = a.outputs[0] + ((u64)slot * R + row) * (CHANNELS * PIXELS);
    for (int i = threadIdx.x; i < CHANNELS * PIXELS; i += blockDim.x) {
        int source = CHANNELS == 1 ? i : (i % CHANNELS) * PIXELS + i / CHANNELS;
        float value = (float)from[source];
        to[i] = sizeof(X) == 1 ? value * (1.0f / 255.0f) : value;
    }
}

// ---- Products on tensor cores, of numbers split in two so that nothing of f32 is lost but the last bit -------------------

__device__ __forceinline__ u32 rounded(float x) {
    u32 r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// One tile of a product: P says how large it is, where its factors come from, and where it goes. Four warps, 64 lines.
// Factors are read four numbers at a time, along the lines or across.
template <class P>
__device__ __forceinline__ void product(const Args& a) {
    constexpr int BM = 64, BK = 32, BN = P::BN, PARTS = BN / 8;
    constexpr int A_PITCH = P::A_ALONG_K ? BK + 4 : BM + 8, B_PITCH = P::B_ALONG_K ? BK + 4 : BN + 8;
    constexpr int A_SIZE = P::A_ALONG_K ? BM * A_PITCH : BK * A_PITCH, B_SIZE = P::B_ALONG_K ? BN * B_PITCH : BK * B_PITCH;
    constexpr int A_LOADS = BM * BK / 4 / 128, B_LOADS = (BN * BK / 4 + 127) / 128;
    __shared__ __align__(16) float as[2][A_SIZE];
    __shared__ __align__(16) float bs[2][B_SIZE];
    u32 slot = blockIdx.z;
    Entry e = entry_of(a, slot);
    P p(a, slot, e);
    int m0 = blockIdx.x * BM, n0 = P::column(blockIdx.y) * BN;
    if (m0 >= p.lines) return;
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
    float ra[A_LOADS][4], rb[B_LOADS][4];
    float sums[PARTS][4];
    for (int j = 0; j < PARTS; ++j) for (int i = 0; i < 4; ++i) sums[j][i] = 0;

    auto fetch = [&](int k0) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            int at = tid + i * 128;
            if (P::A_ALONG_K) p.a4(ra[i], m0 + at / (BK / 4), k0 + at % (BK / 4) * 4);
            else p.a4(ra[i], m0 + at % (BM / 4) * 4, k0 + at / (BM / 4));
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            int at = tid + i * 128;
            if (BN * BK / 4 % 128 && at >= BN * BK / 4) break;
            if (P::B_ALONG_K) p.b4(rb[i], k0 + at % (BK / 4) * 4, n0 + at / (BK / 4));
            else p.b4(rb[i], k0 + at / (BN / 4), n0 + at % (BN / 4) * 4);
        }
    };
    auto store = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            int at = tid + i * 128;
            int place = P::A_ALONG_K ? at / (BK / 4) * A_PITCH + at % (BK / 4) * 4 : at / (BM / 4) * A_PITCH + at % (BM / 4) * 4;
            *(float4*)&as[buffer][place] = make_float4(ra[i][0], ra[i][1], ra[i][2], ra[i][3]);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            int at = tid + i * 128;
            if (BN * BK / 4 % 128 && at >= BN * BK / 4) break;
            int place = P::B_ALONG_K ? at / (BK / 4) * B_PITCH + at % (BK / 4) * 4 : at / (BN / 4) * B_PITCH + at % (BN / 4) * 4;
            *(float4*)&bs[buffer][place] = make_float4(rb[i][0], rb[i][1], rb[i][2], rb[i][3]);
        }
    };

    fetch(p.k_begin);
    store(0);
    __syncthreads();
    int buffer = 0;
    for (int k0 = p.k_begin; k0 < p.k_end; k0 += BK) {
        bool more = k0 + BK < p.k_end;
        if (more) fetch(k0 + BK);
        // Tensor cores cut what they add up; parts of a sum are added with rounding.
        float part[PARTS][4];
        for (int j = 0; j < PARTS; ++j) for (int i = 0; i < 4; ++i) part[j][i] = 0;
#pragma unroll
        for (int k = 0; k < BK; k += 8) {
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                int m = warp * 16 + g + (i & 1) * 8, kk = k + t + (i >> 1) * 4;
                x[i] = as[buffer][P::A_ALONG_K ? m * A_PITCH + kk : kk * A_PITCH + m];
            }
            u32 large[4], small[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                large[i] = rounded(x[i]);
                small[i] = rounded(x[i] - __uint_as_float(large[i]));
            }
#pragma unroll
            for (int j = 0; j < PARTS; ++j) {
                u32 large_b[2], small_b[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    int n = j * 8 + g, kk = k + t + i * 4;
                    float y = bs[buffer][P::B_ALONG_K ? n * B_PITCH + kk : kk * B_PITCH + n];
                    large_b[i] = rounded(y);
                    small_b[i] = rounded(y - __uint_as_float(large_b[i]));
                }
                if (!TF32) {
                    multiply_add(part[j], small, large_b);
                    multiply_add(part[j], large, small_b);
                }
                multiply_add(part[j], large, large_b);
            }
        }
#pragma unroll
        for (int j = 0; j < PARTS; ++j) for (int i = 0; i < 4; ++i) sums[j][i] += part[j][i];
        if (more) store(buffer ^ 1);
        __syncthreads();
        buffer ^= 1;
    }
    // Neighbouring lanes have the lines of a pool: all of them come here.
#pragma unroll
    for (int j = 0; j < PARTS; ++j) {
        int n = n0 + j * 8 + 2 * t, m = m0 + warp * 16 + g;
        p.put(m, n, sums[j][0]);
        p.put(m, n + 1, sums[j][1]);
        p.put(m + 8, n, sums[j][2]);
        p.put(m + 8, n + 1, sums[j][3]);
    }
}

// Four neighbours, of which those below `end` exist.
template <bool ALIGNED>
__device__ __forceinline__ void load4(float (&out)[4], const float* from, int have) {
    if (ALIGNED && have >= 4) {
        float4 x = *(const float4*)from;
        out[0] = x.x; out[1] = x.y; out[2] = x.z; out[3] = x.w;
    } else {
        for (int i = 0; i < 4; ++i) out[i] = i < have ? from[i] : 0.0f;
    }
}

// Where a convolution is POOLED, a rectified pool of 2 x 2 follows that covers all of its output: the four lines of a window then
// follow each other, and only the largest is written, with its place. Backwards, a pixel has the slope of its window if it was it.

// The slopes of four filters at a pixel of a convolution's output.
template <class C>
__device__ __forceinline__ void slopes4(float (&out)[4], const float* slopes, const u8* places, int image, int line, int column, int o, int have) {
    if (!C::POOLED) {
        load4<C::OC % 4 == 0>(out, slopes + ((image * C::OH + line) * C::OW + column) * C::OC + o, have);
        return;
    }
    int at = ((image * (C::OH / 2) + line / 2) * (C::OW / 2) + column / 2) * C::OC + o, own = line % 2 * 2 + column % 2;
    load4<C::OC % 4 == 0>(out, slopes + at, have);
    if (C::OC % 4 == 0 && have >= 4) {
        uchar4 which = *(const uchar4*)(places + at);
        if (which.x != own) out[0] = 0;
        if (which.y != own) out[1] = 0;
        if (which.z != own) out[2] = 0;
        if (which.w != own) out[3] = 0;
    } else {
        for (int i = 0; i < have && i < 4; ++i) if (places[at + i] != own) out[i] = 0;
    }
}

// Filters over images: lines are pixels of the output, columns are filters.
template <class C>
struct ConvolutionForward {
    static constexpr bool A_ALONG_K = true, B_ALONG_K = false;
    static constexpr int BN = C::OC > 16 ? 32 : C::OC > 8 ? 16 : 8, DEPTH = C::K * C::K * C::IC;
    static __device__ __forceinline__ int column(int y) { return y; }
    const float *x, *weight, *bias;
    float* y;
    u8* places;
    int lines, k_begin, k_end;
    __device__ __forceinline__ ConvolutionForward(const Args& a, u32 slot, Entry e) {
        x = a.outputs[C::LAYER] + (u64)slot * R * (C::IH * C::IW * C::IC);
        u64 to = (u64)slot * R * (C::OH * C::OW * C::OC);
        y = C::POOLED ? a.outputs[C::LAYER + 2] + to / 4 : a.outputs[C::LAYER + 1] + to;
        places = C::POOLED ? a.places[C::LAYER + 1] + to / 4 : 0;
        weight = a.params[slot] + C::WEIGHT;
        bias = a.params[slot] + C::BIAS;
        lines = e.count * C::OH * C::OW;
        k_begin = 0;
        k_end = DEPTH;
    }
    __device__ __forceinline__ float at(int image, int down, int right, int k) const {
        if (k >= DEPTH) return 0;
        int line = down * C::S + k / (C::IC * C::K) - C::ABOVE, column = right * C::S + k / C::IC % C::K - C::LEFT;
        if (line < 0 || line >= C::IH || column < 0 || column >= C::IW) return 0;
        return x[((image * C::IH + line) * C::IW + column) * C::IC + k % C::IC];
    }
    __device__ __forceinline__ void a4(float (&out)[4], int m, int k) const {
        int image = m / (C::OH * C::OW), pixel = m % (C::OH * C::OW), down = pixel / C::OW, right = pixel % C::OW;
        if (C::POOLED) {
            int window = pixel / 4;
            down = window / (C::OW / 2) * 2 + pixel % 4 / 2;
            right = window % (C::OW / 2) * 2 + pixel % 2;
        }
        if (m >= lines) {
            for (int i = 0; i < 4; ++i) out[i] = 0;
        } else if (C::IC % 4 == 0) {
            int line = down * C::S + k / (C::IC * C::K) - C::ABOVE, column = right * C::S + k / C::IC % C::K - C::LEFT;
            bool inside = k < DEPTH && line >= 0 && line < C::IH && column >= 0 && column < C::IW;
            load4<true>(out, x + ((image * C::IH + line) * C::IW + column) * C::IC + k % C::IC, inside ? 4 : 0);
        } else {
            for (int i = 0; i < 4; ++i) out[i] = at(image, down, right, k + i);
        }
    }
    __device__ __forceinline__ void b4(float (&out)[4], int k, int n) const {
        load4<C::OC % 4 == 0 && C::WEIGHT % 4 == 0>(out, weight + k * C::OC + n, k < DEPTH ? C::OC - n : 0);
    }
    __device__ __forceinline__ void put(int m, int n, float value) const {
        if (C::HAS_BIAS && n < C::OC) value += bias[n];
        if (!C::POOLED) {
            if (m < lines && n < C::OC) y[(u64)m * C::OC + n] = value;
            return;
        }
        // The first of equals, as one goes through a window.
        int place = m % 4;
        for (int way = 4; way <= 8; way *= 2) {
            float other = __shfl_xor_sync(0xffffffffu, value, way);
            int its = __shfl_xor_sync(0xffffffffu, place, way);
            if (other > value || (other == value && its < place)) { value = other; place = its; }
        }
        if (m % 4 == 0 && m < lines && n < C::OC) {
            u64 at = (u64)(m / 4) * C::OC + n;
            y[at] = value > 0 ? value : 0.0f;
            places[at] = value > 0 ? (u8)place : (u8)255;
        }
    }
};

// The slopes of a convolution's inputs: lines are pixels of the input, columns its channels.
template <class C>
struct ConvolutionDown {
    static constexpr bool A_ALONG_K = true, B_ALONG_K = true;
    static constexpr int BN = C::IC > 16 ? 32 : C::IC > 8 ? 16 : 8, DEPTH = C::K * C::K * C::OC;
    static __device__ __forceinline__ int column(int y) { return y; }
    const float *slopes, *weight;
    const u8* places;
    float* down;
    int lines, k_begin, k_end;
    __device__ __forceinline__ ConvolutionDown(const Args& a, u32 slot, Entry e) {
        u64 from = (u64)slot * R * (C::OH * C::OW * C::OC);
        slopes = C::POOLED ? a.slopes[C::LAYER + 2] + from / 4 : a.slopes[C::LAYER + 1] + from;
        places = C::POOLED ? a.places[C::LAYER + 1] + from / 4 : 0;
        down = a.slopes[C::LAYER] + (u64)slot * R * (C::IH * C::IW * C::IC);
        weight = a.params[slot] + C::WEIGHT;
        lines = e.count * C::IH * C::IW;
        k_begin = 0;
        k_end = DEPTH;
    }
    // The slopes of neighbouring filters' pixel that this input has a part in.
    __device__ __forceinline__ void some(float (&out)[4], int m, int k, int have) const {
        int image = m / (C::IH * C::IW), pixel = m % (C::IH * C::IW);
        int line = pixel / C::IW + C::ABOVE - k / (C::OC * C::K), column = pixel % C::IW + C::LEFT - k / C::OC % C::K;
        bool inside = k < DEPTH && m < lines && line >= 0 && column >= 0 && line % C::S == 0 && column % C::S == 0;
        inside = inside && line / C::S < C::OH && column / C::S < C::OW;
        if (inside) slopes4<C>(out, slopes, places, image, line / C::S, column / C::S, k % C::OC, have);
        else for (int i = 0; i < 4; ++i) out[i] = 0;
    }
    __device__ __forceinline__ void a4(float (&out)[4], int m, int k) const {
        if (C::OC % 4 == 0) {
            some(out, m, k, 4);
        } else {
            for (int i = 0; i < 4; ++i) {
                float one[4];
                some(one, m, k + i, 1);
                out[i] = one[0];
            }
        }
    }
    __device__ __forceinline__ void b4(float (&out)[4], int k, int n) const {
        if (C::OC % 4 == 0) {
            bool inside = k < DEPTH && n < C::IC;
            load4<C::WEIGHT % 4 == 0>(out, weight + (k / C::OC * C::IC + n) * C::OC + k % C::OC, inside ? 4 : 0);
        } else {
            for (int i = 0; i < 4; ++i) {
                bool inside = k + i < DEPTH && n < C::IC;
                out[i] = inside ? weight[((k + i) / C::OC * C::IC + n) * C::OC + (k + i) % C::OC] : 0.0f;
            }
        }
    }
    __device__ __forceinline__ void put(int m, int n, float value) const {
        if (m < lines && n < C::IC) down[(u64)m * C::IC + n] = value;
    }
};

// The gradient of a convolution's filters, and of its biases in one more line. The pixels of all images are added up in
// several parts.
template <class C>
struct ConvolutionGradient {
    static constexpr bool A_ALONG_K = false, B_ALONG_K = false;
    static constexpr int BN = C::OC > 16 ? 32 : C::OC > 8 ? 16 : 8, DEPTH = C::K * C::K * C::IC, LINES = DEPTH + C::HAS_BIAS;
    static constexpr int COLUMNS = (C::OC + BN - 1) / BN;
    static __device__ __forceinline__ int column(int y) { return y % COLUMNS; }
    const float *x, *slopes;
    const u8* places;
    float* to;
    int lines, k_begin, k_end, pixels;
    __device__ __forceinline__ ConvolutionGradient(const Args& a, u32 slot, Entry e) {
        x = a.outputs[C::LAYER] + (u64)slot * R * (C::IH * C::IW * C::IC);
        u64 from = (u64)slot * R * (C::OH * C::OW * C::OC);
        slopes = C::POOLED ? a.slopes[C::LAYER + 2] + from / 4 : a.slopes[C::LAYER + 1] + from;
        places = C::POOLED ? a.places[C::LAYER + 1] + from / 4 : 0;
        lines = LINES;
        pixels = e.count * C::OH * C::OW;
        int part = blockIdx.y / COLUMNS, each = ((pixels + C::PARTS - 1) / C::PARTS + 31) / 32 * 32;
        k_begin = min(part * each, pixels);
        k_end = min(k_begin + each, pixels);
        to = a.partials[C::LAYER] + ((u64)slot * C::PARTS + part) * (LINES * C::OC);
    }
    __device__ __forceinline__ float at(int m, int image, int down, int right) const {
        if (m >= DEPTH) return m == DEPTH && C::HAS_BIAS ? 1.0f : 0.0f;
        int line = down * C::S + m / (C::IC * C::K) - C::ABOVE, column = right * C::S + m / C::IC % C::K - C::LEFT;
        if (line < 0 || line >= C::IH || column < 0 || column >= C::IW) return 0;
        return x[((image * C::IH + line) * C::IW + column) * C::IC + m % C::IC];
    }
    __device__ __forceinline__ void a4(float (&out)[4], int m, int k) const {
        int image = k / (C::OH * C::OW), pixel = k % (C::OH * C::OW), down = pixel / C::OW, right = pixel % C::OW;
        if (k >= k_end) {
            for (int i = 0; i < 4; ++i) out[i] = 0;
        } else if (C::IC % 4 == 0 && m < DEPTH) {
            int line = down * C::S + m / (C::IC * C::K) - C::ABOVE, column = right * C::S + m / C::IC % C::K - C::LEFT;
            bool inside = line >= 0 && line < C::IH && column >= 0 && column < C::IW;
            load4<true>(out, x + ((image * C::IH + line) * C::IW + column) * C::IC + m % C::IC, inside ? 4 : 0);
        } else {
            for (int i = 0; i < 4; ++i) out[i] = at(m + i, image, down, right);
        }
    }
    __device__ __forceinline__ void b4(float (&out)[4], int k, int n) const {
        int image = k / (C::OH * C::OW), pixel = k % (C::OH * C::OW);
        slopes4<C>(out, slopes, places, image, pixel / C::OW, pixel % C::OW, n, k < k_end ? max(C::OC - n, 0) : 0);
    }
    __device__ __forceinline__ void put(int m, int n, float value) const {
        if (m < LINES && n < C::OC) to[m * C::OC + n] = value;
    }
};

// Adds the parts of a convolution's gradient up.
template <class C>
__device__ __forceinline__ void settle(const Args& a) {
    constexpr int LINES = C::K * C::K * C::IC + C::HAS_BIAS, SIZE = LINES * C::OC;
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, slot = blockIdx.z;
    Entry e = entry_of(a, slot);
    if (i >= SIZE || e.count == 0) return;
    const float* from = a.partials[C::LAYER] + (u64)slot * C::PARTS * SIZE + i;
    float sum = 0;
    for (int part = 0; part < C::PARTS; ++part) sum += from[(u64)part * SIZE];
    take(a, slot, e.first, C::WEIGHT + i, sum);
}

// ---- Pools ----------------------------------------------------------------------------------------------------------------

// KIND 0 takes the largest, 1 the largest if it is above 0, 2 the mean.
template <class C>
__device__ __forceinline__ void pool_forward(const Args& a) {
    u32 slot = blockIdx.z, count = entry_of(a, slot).count;
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count * (C::OH * C::OW * C::IC)) return;
    int c = i % C::IC, right = i / C::IC % C::OW, down = i / (C::IC * C::OW) % C::OH, image = i / (C::IC * C::OW * C::OH);
    const float* x = a.outputs[C::LAYER] + ((u64)slot * R + image) * (C::IH * C::IW * C::IC);
    int top = max(down * C::SH - C::ABOVE, 0), bottom = min(down * C::SH + C::WH - C::ABOVE, C::IH);
    int left = max(right * C::SW - C::LEFT, 0), end = min(right * C::SW + C::WW - C::LEFT, C::IW);
    u64 to = (u64)slot * R * (C::OH * C::OW * C::IC) + i;
    float best = C::KIND == 0 ? __int_as_float(0xff800000) : 0.0f, share = 1.0f / ((bottom - top) * (end - left));
    int place = C::KIND == 1 ? 255 : 0, at = 0;
    for (int line = top; line < bottom; ++line) {
        for (int column = left; column < end; ++column, ++at) {
            float value = x[(line * C::IW + column) * C::IC + c];
            if (C::KIND == 2) best += share * value;
            else if (value > best) { best = value; place = at; }
        }
    }
    a.outputs[C::LAYER + 1][to] = best;
    if (C::KIND != 2) a.places[C::LAYER][to] = (u8)place;
}

template <class C>
__device__ __forceinline__ void pool_backward(const Args& a) {
    u32 slot = blockIdx.z, count = entry_of(a, slot).count;
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count * (C::IH * C::IW * C::IC)) return;
    int c = i % C::IC, column = i / C::IC % C::IW, line = i / (C::IC * C::IW) % C::IH, image = i / (C::IC * C::IW * C::IH);
    u64 base = ((u64)slot * R + image) * (C::OH * C::OW * C::IC);
    const float* slopes = a.slopes[C::LAYER + 1] + base;
    const u8* places = C::KIND != 2 ? a.places[C::LAYER] + base : 0;
    float sum = 0;
    int first_down = max((line + C::ABOVE - C::WH + C::SH) / C::SH, 0), last_down = min((line + C::ABOVE) / C::SH, C::OH - 1);
    int first_right = max((column + C::LEFT - C::WW + C::SW) / C::SW, 0), last_right = min((column + C::LEFT) / C::SW, C::OW - 1);
    for (int down = first_down; down <= last_down; ++down) {
        int top = max(down * C::SH - C::ABOVE, 0), bottom = min(down * C::SH + C::WH - C::ABOVE, C::IH);
        if (line < top || line >= bottom) continue;
        for (int right = first_right; right <= last_right; ++right) {
            int left = max(right * C::SW - C::LEFT, 0), end = min(right * C::SW + C::WW - C::LEFT, C::IW);
            if (column < left || column >= end) continue;
            int from = (down * C::OW + right) * C::IC + c;
            if (C::KIND == 2) sum += slopes[from] / ((bottom - top) * (end - left));
            else if (places[from] == (line - top) * (end - left) + column - left) sum += slopes[from];
        }
    }
    a.slopes[C::LAYER][(u64)slot * R * (C::IH * C::IW * C::IC) + i] = sum;
}

template <class C>
__device__ __forceinline__ void rectify_forward(const Args& a) {
    u32 slot = blockIdx.z, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= entry_of(a, slot).count * C::SIZE) return;
    u64 at = (u64)slot * R * C::SIZE + i;
    float x = a.outputs[C::LAYER][at];
    a.outputs[C::LAYER + 1][at] = x > 0 ? x : 0.0f;
}

template <class C>
__device__ __forceinline__ void rectify_backward(const Args& a) {
    u32 slot = blockIdx.z, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= entry_of(a, slot).count * C::SIZE) return;
    u64 at = (u64)slot * R * C::SIZE + i;
    a.slopes[C::LAYER][at] = a.outputs[C::LAYER][at] > 0 ? a.slopes[C::LAYER + 1][at] : 0.0f;
}

// ---- Dense layers of few rows: what takes time is to read the weights, so every weight is read once for T rows --------------

template <class C>
__device__ __forceinline__ void dense_forward(const Args& a) {
    constexpr int V = C::V, T = C::T, OWN = C::OWN, CHUNK = 512;
    constexpr int PIECE = C::IN < CHUNK ? (C::IN + 3) / 4 * 4 : CHUNK;
    __shared__ __align__(16) float xs[T][PIECE];
    u32 slot = blockIdx.z;
    int count = entry_of(a, slot).count, row0 = blockIdx.y * T;
    if (row0 >= count) return;
    int lane = threadIdx.x & 31, output = (blockIdx.x * 8 + (threadIdx.x >> 5)) * OWN;
    const float* x = a.outputs[C::LAYER] + ((u64)slot * R + row0) * C::IN;
    const float* weight = a.params[slot] + C::WEIGHT + (u64)output * C::IN;
    float sums[OWN][T];
    for (int o = 0; o < OWN; ++o) for (int r = 0; r < T; ++r) sums[o][r] = 0;
    for (int k0 = 0; k0 < C::IN; k0 += PIECE) {
        __syncthreads();
        for (int i = threadIdx.x; i < T * PIECE; i += 256) {
            int r = i / PIECE, k = i % PIECE;
            xs[r][k] = row0 + r < count && k0 + k < C::IN ? x[r * C::IN + k0 + k] : 0.0f;
        }
        __syncthreads();
        if (output >= C::OUT) continue;
        int have = min(PIECE, C::IN - k0);
#pragma unroll 2
        for (int k = lane * V; k < have; k += 32 * V) {
            float w[OWN][V];
#pragma unroll
            for (int o = 0; o < OWN; ++o) {
                if (output + o < C::OUT) load<V>(w[o], weight + (u64)o * C::IN + k0 + k);
                else for (int v = 0; v < V; ++v) w[o][v] = 0;
            }
#pragma unroll
            for (int r = 0; r < T; ++r) {
                float own[V];
                load<V>(own, &xs[r][k]);
#pragma unroll
                for (int o = 0; o < OWN; ++o) {
#pragma unroll
                    for (int v = 0; v < V; ++v) sums[o][r] += own[v] * w[o][v];
                }
            }
        }
    }
    if (output >= C::OUT) return;
    float* y = a.outputs[C::LAYER + 1] + ((u64)slot * R + row0) * C::OUT;
#pragma unroll
    for (int o = 0; o < OWN; ++o) {
        if (output + o >= C::OUT) break;
        float bias = C::HAS_BIAS ? a.params[slot][C::BIAS + output + o] : 0.0f;
#pragma unroll
        for (int r = 0; r < T; ++r) {
            float sum = sums[o][r];
            for (int way = 16; way > 0; way /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, way);
            sum += bias;
            if (lane == r % 32 && row0 + r < count) y[r * C::OUT + output + o] = C::RECTIFY && !(sum > 0) ? 0.0f : sum;
        }
    }
}

// The slopes of a dense layer's inputs, 0 where a rectifier below was.
template <class C>
__device__ __forceinline__ void dense_down(const Args& a) {
    constexpr int V = C::V, T = C::T, PIECE = 128;
    __shared__ float ds[T][PIECE];
    __shared__ float others[4][T][32 * V];
    u32 slot = blockIdx.z;
    int count = entry_of(a, slot).count, row0 = blockIdx.y * T;
    if (row0 >= count) return;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, column = (blockIdx.x * 32 + lane) * V;
    const float* slopes = a.slopes[C::LAYER + 1] + ((u64)slot * R + row0) * C::OUT;
    const float* weight = a.params[slot] + C::WEIGHT + column;
    float sums[T][V];
    for (int r = 0; r < T; ++r) for (int v = 0; v < V; ++v) sums[r][v] = 0;
    for (int o0 = 0; o0 < C::OUT; o0 += PIECE) {
        __syncthreads();
        for (int i = threadIdx.x; i < T * PIECE; i += 256) {
            int r = i / PIECE, o = i % PIECE;
            ds[r][o] = row0 + r < count && o0 + o < C::OUT ? slopes[r * C::OUT + o0 + o] : 0.0f;
        }
        __syncthreads();
        int have = min(PIECE, C::OUT - o0);
        if (column < C::IN) {
#pragma unroll 4
            for (int o = warp; o < have; o += 8) {
                float w[V];
                load<V>(w, weight + (u64)(o0 + o) * C::IN);
#pragma unroll
                for (int r = 0; r < T; ++r) {
#pragma unroll
                    for (int v = 0; v < V; ++v) sums[r][v] += ds[r][o] * w[v];
                }
            }
        }
    }
    for (int half = 4; half > 0; half /= 2) {
        if (warp >= half && warp < 2 * half) {
            for (int r = 0; r < T; ++r) for (int v = 0; v < V; ++v) others[warp - half][r][lane * V + v] = sums[r][v];
        }
        __syncthreads();
        if (warp < half) {
            for (int r = 0; r < T; ++r) for (int v = 0; v < V; ++v) sums[r][v] += others[warp][r][lane * V + v];
        }
        __syncthreads();
    }
    if (warp > 0 || column >= C::IN) return;
    u64 to = ((u64)slot * R + row0) * C::IN + column;
    for (int r = 0; r < T && row0 + r < count; ++r) {
        for (int v = 0; v < V; ++v) {
            bool stays = !C::GATE || a.outputs[C::LAYER][to + r * C::IN + v] > 0;
            a.slopes[C::LAYER][to + r * C::IN + v] = stays ? sums[r][v] : 0.0f;
        }
    }
}

// The gradient of a dense layer, straight into the step where it is whole.
template <class C>
__device__ __forceinline__ void dense_gradient(const Args& a) {
    constexpr int V = C::V, OUTPUTS = 16, ROWS = 32;
    __shared__ float ds[ROWS][OUTPUTS];
    u32 slot = blockIdx.z;
    Entry e = entry_of(a, slot);
    if (e.count == 0) return;
    int column = (blockIdx.x * 128 + threadIdx.x) * V, o0 = blockIdx.y * OUTPUTS;
    const float* x = a.outputs[C::LAYER] + (u64)slot * R * C::IN + column;
    const float* slopes = a.slopes[C::LAYER + 1] + (u64)slot * R * C::OUT;
    float sums[OUTPUTS][V], bias = 0;
    for (int o = 0; o < OUTPUTS; ++o) for (int v = 0; v < V; ++v) sums[o][v] = 0;
    for (int row0 = 0; row0 < (int)e.count; row0 += ROWS) {
        int have = min(ROWS, (int)e.count - row0);
        __syncthreads();
        for (int i = threadIdx.x; i < have * OUTPUTS; i += 128) {
            int r = i / OUTPUTS, o = i % OUTPUTS;
            ds[r][o] = o0 + o < C::OUT ? slopes[(u64)(row0 + r) * C::OUT + o0 + o] : 0.0f;
        }
        __syncthreads();
        if (threadIdx.x < OUTPUTS) for (int r = 0; r < have; ++r) bias += ds[r][threadIdx.x];
        if (column >= C::IN) continue;
#pragma unroll 2
        for (int r = 0; r < have; ++r) {
            float own[V];
            load<V>(own, x + (u64)(row0 + r) * C::IN);
#pragma unroll
            for (int o = 0; o < OUTPUTS; ++o) {
#pragma unroll
                for (int v = 0; v < V; ++v) sums[o][v] += ds[r][o] * own[v];
            }
        }
    }
    if (C::HAS_BIAS && blockIdx.x == 0 && threadIdx.x < OUTPUTS && o0 + threadIdx.x < C::OUT) {
        take(a, slot, e.first, C::BIAS + o0 + threadIdx.x, bias);
    }
    if (column >= C::IN) return;
#pragma unroll
    for (int o = 0; o < OUTPUTS; ++o) {
        if (o0 + o < C::OUT) take_several<V>(a, slot, e.first, C::WEIGHT + (o0 + o) * C::IN + column, sums[o]);
    }
}

// ---- Losses -----------------------------------------------------------------------------------------------------------------

// What rows should be, and how sure a network is to be of it.
struct Targets { const u32* classes; const float* values; float smoothing; };

// A row's loss; leaves its slopes times `scale` where they are wanted. KIND 0 is squared error, 1 logistic, 2 softmax.
template <int KIND, int OUT, bool SLOPES>
__device__ __forceinline__ float judge_row(const Targets& wanted, const float* out, float* slopes, u32 row, float scale, bool& right) {
    right = false;
    if (KIND == 0) {
        float residual = out[0] - wanted.values[row];
        if (SLOPES) slopes[0] = (residual + residual) * scale;
        return residual * residual;
    }
    u32 class_ = wanted.classes[row];
    if (KIND == 1) {
        bool is_one = class_ == 0xffffffffu ? out[0] < 0 : class_ == 1;
        float sign = is_one ? 1.0f : -1.0f, odds = sign * out[0], power = expf(-fabsf(odds));
        // The chance of the other class.
        if (SLOPES) slopes[0] = -sign * ((-odds > 0 ? 1.0f : power) / (1.0f + power)) * scale;
        right = (out[0] > 0 ? 1u : 0u) == class_;
        float small = log1pf(power);
        return odds > 0 ? small : small - odds;
    }
    float largest = out[0];
    for (int c = 1; c < OUT; ++c) largest = out[c] > largest ? out[c] : largest;
    u32 own = class_;
    if (class_ == 0xffffffffu) {
        own = 0;
        for (int c = 1; c < OUT; ++c) if (out[c] < out[own]) own = c;
    }
    float total = 0, mean = 0, score = out[own];
    right = class_ != 0xffffffffu;
    for (int c = 0; c < OUT; ++c) {
        float power = expf(out[c] - largest);
        total += power;
        mean += out[c];
        if (SLOPES) slopes[c] = power;
        if ((u32)c != own && !(out[c] < score || (out[c] == score && (u32)c > own))) right = false;
    }
    float loss = logf(total) + (largest - score);
    if (SLOPES) {
        float share = scale / total, even = scale * wanted.smoothing / OUT;
        for (int c = 0; c < OUT; ++c) slopes[c] = slopes[c] * share - even;
        slopes[own] -= scale - scale * wanted.smoothing;
        loss += wanted.smoothing * (score - mean / OUT);
    }
    return loss;
}

// The sum of what 128 threads have, in a fixed order.
template <class X>
__device__ __forceinline__ X total_of(X value) {
    __shared__ X all[128];
    all[threadIdx.x] = value;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];
        __syncthreads();
    }
    X sum = all[0];
    __syncthreads();
    return sum;
}

// Slopes of the mean loss of a step, and that loss before the first one.
template <int KIND, int OUT, int LAST>
__device__ __forceinline__ void judge(const Args& a) {
    u32 slot = blockIdx.z;
    Entry e = entry_of(a, slot);
    Targets wanted = {a.classes, a.values, a.smoothing};
    double loss = 0;
    for (u32 row = threadIdx.x; row < e.count; row += 128) {
        u64 at = ((u64)slot * R + row) * OUT;
        bool right;
        loss += judge_row<KIND, OUT, true>(wanted, a.outputs[LAST] + at, a.slopes[LAST] + at, a.order[e.begin + row], 1.0f / e.of, right);
    }
    if (!a.notes) return;
    loss = total_of(loss);
    if (threadIdx.x == 0 && e.count) a.losses[slot] = (e.first ? 0.0 : a.losses[slot]) + loss / e.of;
}

// Losses and hits of some rows.
template <int KIND, int OUT, int LAST>
__device__ __forceinline__ void score(const Args& a) {
    u32 slot = blockIdx.z;
    Entry e = entry_of(a, slot);
    Targets wanted = {a.classes, a.values, a.smoothing};
    double loss = 0;
    u32 hits = 0;
    for (u32 row = threadIdx.x; row < e.count; row += 128) {
        bool right;
        float own = judge_row<KIND, OUT, false>(wanted, a.outputs[LAST] + ((u64)slot * R + row) * OUT, 0, a.order[e.begin + row], 0, right);
        if (a.row_losses) a.row_losses[(u64)slot * R + row] = own;
        loss += own;
        hits += right;
    }
    loss = total_of(loss);
    hits = total_of(hits);
    if (threadIdx.x == 0) {
        a.losses[slot] = loss;
        a.hits[slot] = hits;
    }
}

// Adds models up, one after the other.
struct Totals { float* const* params; const u32* slots; const double* weights; double* total; u32 count; };

extern "C" __global__ void add_models(const __grid_constant__ Totals t) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= WIDTH) return;
    double sum = 0;
    for (u32 k = 0; k < t.count; ++k) sum += t.weights[k] * t.params[t.slots[k]][i];
    t.total[i] = sum;
}

extern "C" __global__ void copy(const __grid_constant__ Args a) { copy_starts(a); }
extern "C" __global__ void apply(const __grid_constant__ Args a) { apply_gradient(a); }
extern "C" __global__ void average(const __grid_constant__ Args a) { average_models(a); }
