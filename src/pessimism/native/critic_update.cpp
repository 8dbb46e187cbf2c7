// The critics' TD-learning on a processor with AVX-512, one member of the ensemble at a time.
//
// A member's weights, activations and gradients fit into one core's second-level cache. Each thread owns some
// members and takes each through its whole update (forward, loss, backward, Adam, spectral projection, Polyak
// average), where batched products would stream all members through memory between any two of these steps.
// No sum is shared between threads: results do not depend on their number or timing, bit for bit.
//
// Both critics are one network here. With h = relu(x W1 + b1), z = relu(f(h) W2 + b2), per transition:
//   plain:    f(h) = h,             value = z . V + c
//   residual: f(h) = layer norm,    value = z . (W3 V) + (h + b3) . V + c
// As the value is one number, the outer matrix W3 only ever meets vectors: so do its gradients, of rank one.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

using Index = int64_t;
using Vector = __m512;
constexpr Index LANES = 16;
constexpr Index WIDTH = 2 * LANES;  // columns of a tile
constexpr Index HEIGHT = 14;        // rows of a tile: 28 sums, and 4 registers for the operands

// The order of the critic's parameters; a plain critic has null pointers where it has no such layer.
enum Parameter { FIRST, FIRST_BIAS, GAIN, SHIFT, INNER, INNER_BIAS, OUTER, OUTER_BIAS, HEAD, HEAD_BIAS, PARAMETERS };

extern "C" struct Problem {  // mirrored by ctypes
    Index members, batch, inputs, hidden, threads;
    float *online[PARAMETERS], *averaged[PARAMETERS], *means[PARAMETERS], *squares[PARAMETERS];
    float *left[PARAMETERS], *right[PARAMETERS];  // singular vectors of the matrices that are projected, else null
    float norm_epsilon, first_decay, second_decay, epsilon, tau;

    bool residual() const { return online[OUTER] != nullptr; }
    Index size(int parameter) const {  // of one member
        switch (parameter) {
            case FIRST: return inputs * hidden;
            case INNER: case OUTER: return hidden * hidden;
            case HEAD_BIAS: return 1;
            default: return hidden;
        }
    }
};

namespace {

// ---- vectors -----------------------------------------------------------------------------------------------

inline Vector load(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
inline Vector all(float value) { return _mm512_set1_ps(value); }
inline Vector positive(Vector gate, Vector value) {  // value where gate > 0, else 0
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(gate, _mm512_setzero_ps(), _CMP_GT_OQ), value);
}

float dot(const float* a, const float* b, Index size) {
    Vector even = all(0), odd = all(0);
    for (Index j = 0; j < size; j += WIDTH) {
        even += load(a + j) * load(b + j);
        odd += load(a + j + LANES) * load(b + j + LANES);
    }
    return _mm512_reduce_add_ps(even + odd);
}

void add_scaled(float* to, float scale, const float* from, Index size) {
    for (Index j = 0; j < size; j += LANES) store(to + j, load(to + j) + all(scale) * load(from + j));
}

void prefetch(const float* from, Index count) {  // into the second-level cache
    for (Index j = 0; j < count; j += LANES) _mm_prefetch(reinterpret_cast<const char*>(from + j), _MM_HINT_T1);
}

// ---- matrix products: row-major operands, hidden-wide results ----------------------------------------------

// One tile of C = A B. The element of A in row r and column k lies at a[r * row + k * column].
template <int ROWS, bool TRANSPOSED>
void tile(Index inner, const float* a, Index stride, const float* b, Index width, float* c) {
    Vector sums[ROWS][2];
    for (int r = 0; r < ROWS; r++) sums[r][0] = sums[r][1] = all(0);
    const float* rows[(ROWS + 2) / 3];  // every third row: the others are reached by an index register
    for (int g = 0; g < (ROWS + 2) / 3; g++) rows[g] = a + 3 * g * stride;
    for (Index k = 0; k < inner; k++, b += width) {
        const Vector b0 = load(b), b1 = load(b + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            const Vector x = all(TRANSPOSED ? a[r] : rows[r / 3][r % 3 * stride]);
            sums[r][0] = _mm512_fmadd_ps(x, b0, sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(x, b1, sums[r][1]);
        }
        if (TRANSPOSED) a += ROWS;
        else for (auto& row : rows) row++;
    }
    for (int r = 0; r < ROWS; r++) {
        store(c + r * width, sums[r][0]);
        store(c + r * width + LANES, sums[r][1]);
    }
}

// C[ROWS, width] = A[ROWS, inner] B[inner, width]. Transposed, A's rows are columns in memory and are first
// gathered, so that they are read once from a distance and not once for each tile.
template <int ROWS, bool TRANSPOSED>
void block(Index inner, const float* a, Index stride, const float* b, Index width, float* c, float* gathered) {
    if (TRANSPOSED) {
        for (Index k = 0; k < inner; k++)
            for (int r = 0; r < ROWS; r++) gathered[k * ROWS + r] = a[k * stride + r];
        a = gathered;
    }
    for (Index j = 0; j < width; j += WIDTH) tile<ROWS, TRANSPOSED>(inner, a, stride, b + j, width, c + j);
}

template <bool TRANSPOSED>
void any_block(Index rows, Index inner, const float* a, Index stride, const float* b, Index width, float* c,
               float* gathered) {
    using Block = void (*)(Index, const float*, Index, const float*, Index, float*, float*);
    static const Block blocks[HEIGHT] = {
        block<1, TRANSPOSED>,  block<2, TRANSPOSED>,  block<3, TRANSPOSED>,  block<4, TRANSPOSED>,
        block<5, TRANSPOSED>,  block<6, TRANSPOSED>,  block<7, TRANSPOSED>,  block<8, TRANSPOSED>,
        block<9, TRANSPOSED>,  block<10, TRANSPOSED>, block<11, TRANSPOSED>, block<12, TRANSPOSED>,
        block<13, TRANSPOSED>, block<14, TRANSPOSED>};
    blocks[rows - 1](inner, a, stride, b, width, c, gathered);
}

// Cut the rows into blocks as equal as can be: a last block of one row would run at an eighth of the speed.
template <class Body>
void for_blocks(Index rows, Body body) {
    const Index blocks = (rows + HEIGHT - 1) / HEIGHT;
    for (Index n = 0; n < blocks; n++) {
        const Index begin = rows * n / blocks, end = rows * (n + 1) / blocks;
        body(begin, end - begin);
    }
}

void transpose16(const float* from, float* to, Index width) {
    Vector a[LANES], b[LANES];
    for (int i = 0; i < 16; i++) a[i] = load(from + i * width);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            const __m512d low = _mm512_castps_pd(b[i + j]), high = _mm512_castps_pd(b[i + j + 2]);
            a[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            b[i + j] = _mm512_shuffle_f32x4(a[i + j], a[i + j + 4], 0x88);
            b[i + j + 4] = _mm512_shuffle_f32x4(a[i + j], a[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        store(to + j * width, _mm512_shuffle_f32x4(b[j], b[j + 8], 0x88));
        store(to + (j + 8) * width, _mm512_shuffle_f32x4(b[j], b[j + 8], 0xdd));
    }
}

void transpose(Index size, const float* from, float* to) {
    for (Index i = 0; i < size; i += LANES)
        for (Index j = 0; j < size; j += LANES) transpose16(from + i * size + j, to + j * size + i, size);
}

// ---- one member --------------------------------------------------------------------------------------------

struct Workspace {  // a thread's own, kept between calls
    std::vector<float> memory;
    float *first, *normal, *hidden, *gradient;  // [batch, hidden]
    float *transposed;                          // [hidden, hidden]
    float *gathered, *rows;                     // of a block of a weight gradient, and its result
    float *centre, *scale, *errors;             // [batch]
    float *readout, *image, *by_hidden, *by_first;  // [hidden]
    float* by[PARAMETERS];                      // gradients of the parameters that are vectors

    void fit(Index batch, Index hidden) {
        const Index padded = (batch + LANES - 1) / LANES * LANES;
        const Index wanted = 4 * padded * hidden + hidden * hidden + HEIGHT * (padded + hidden) + 3 * padded +
                             (4 + PARAMETERS) * hidden + LANES;
        if (Index(memory.size()) < wanted) memory.resize(wanted);
        auto* next = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
        const auto take = [&](Index size) { return std::exchange(next, next + size); };
        for (float** part : {&first, &normal, &this->hidden, &gradient}) *part = take(padded * hidden);
        transposed = take(hidden * hidden);
        gathered = take(HEIGHT * padded);
        rows = take(HEIGHT * hidden);
        for (float** part : {&centre, &scale, &errors}) *part = take(padded);
        for (float** part : {&readout, &image, &by_hidden, &by_first}) *part = take(hidden);
        for (float*& part : by) part = take(hidden);
    }
};

class Member {
  public:
    Member(const Problem& problem, Index index, Workspace& space)
        : p(problem), n(index), w(space), size(problem.hidden), residual(problem.residual()) {}

    // Evaluate the network with the given weights; activations stay in the workspace for `backward`.
    void forward(float* const* weights, const float* x, float* values) {
        net = weights;
        const float *bias = of(FIRST_BIAS), *head = of(HEAD);
        for_blocks(p.batch, [&](Index i, Index count) {
            prefetch_share(of(INNER), size * size, i, count);
            any_block<false>(count, p.inputs, x + i * p.inputs, p.inputs, of(FIRST), size, w.first + i * size, nullptr);
            for (Index b = i; b < i + count; b++) {
                bias_relu(w.first + b * size, bias);
                if (residual) normalise(b);
            }
        });
        float offset = *of(HEAD_BIAS);
        if (residual) {
            for (Index i = 0; i < size; i++) w.readout[i] = dot(of(OUTER) + i * size, head, size);
            offset += dot(of(OUTER_BIAS), head, size);
        } else {
            std::copy_n(head, size, w.readout);
        }
        for_blocks(p.batch, [&](Index i, Index count) {
            any_block<false>(count, size, features() + i * size, size, of(INNER), size, w.hidden + i * size, nullptr);
            for (Index b = i; b < i + count; b++) {
                bias_relu(w.hidden + b * size, of(INNER_BIAS));
                values[b] = dot(w.hidden + b * size, w.readout, size) + offset;
                if (residual) values[b] += dot(w.first + b * size, head, size);
            }
        });
    }

    // After a forward pass of the online network: one step of Adam towards the target. Returns the loss.
    float learn(const float* x, const float* values, const float* target, float rate, float square_scale) {
        step_rate = rate;
        step_scale = square_scale;
        for (float* sum : w.by) std::fill_n(sum, size, 0.f);
        const float loss = backward_head(values, target);
        backward_square();
        update_matrix(INNER, size, features(), w.hidden);
        update_matrix(FIRST, p.inputs, x, w.gradient);
        if (residual) update_outer();
        for (int parameter : {FIRST_BIAS, GAIN, SHIFT, INNER_BIAS, OUTER_BIAS, HEAD, HEAD_BIAS})
            if (net[parameter]) {
                adam(parameter, 0, p.size(parameter), w.by[parameter]);
                average(parameter, 0, p.size(parameter));
            }
        return loss;
    }

  private:
    const Problem& p;
    const Index n;
    Workspace& w;
    const Index size;
    const bool residual;
    float* const* net = nullptr;
    float step_rate = 0, step_scale = 0;

    float* of(int parameter) const { return net[parameter] + n * p.size(parameter); }
    const float* features() const { return residual ? w.normal : w.first; }  // inputs of the square layer

    void bias_relu(float* row, const float* bias) const {
        for (Index j = 0; j < size; j += LANES) {
            const Vector value = load(row + j) + load(bias + j);
            store(row + j, positive(value, value));
        }
    }

    void normalise(Index b) {
        const float *in = w.first + b * size, *gain = of(GAIN), *shift = of(SHIFT);
        float* out = w.normal + b * size;
        Vector sum = all(0), squares = all(0);
        for (Index j = 0; j < size; j += LANES) sum += load(in + j);
        const float centre = _mm512_reduce_add_ps(sum) / size;
        for (Index j = 0; j < size; j += LANES) {
            const Vector off = load(in + j) - all(centre);
            squares += off * off;
        }
        const float scale = 1 / std::sqrt(_mm512_reduce_add_ps(squares) / size + p.norm_epsilon);
        for (Index j = 0; j < size; j += LANES)
            store(out + j, (load(in + j) - all(centre)) * all(scale) * load(gain + j) + load(shift + j));
        w.centre[b] = centre;
        w.scale[b] = scale;
    }

    // From the loss 1/2 mean (value - target)^2 to the gradient before the square layer's ReLU, which takes
    // the place of that layer's activations.
    float backward_head(const float* values, const float* target) {
        float loss = 0, total = 0;
        std::fill_n(w.by_hidden, size, 0.f);
        std::fill_n(w.by_first, size, 0.f);
        for (Index b = 0; b < p.batch; b++) {
            const float difference = values[b] - target[b], error = difference / p.batch;
            float* row = w.hidden + b * size;
            loss += 0.5f * difference * error;
            total += w.errors[b] = error;
            add_scaled(w.by_hidden, error, row, size);
            if (residual) add_scaled(w.by_first, error, w.first + b * size, size);
            for (Index j = 0; j < size; j += LANES) {
                const Vector gradient = positive(load(row + j), all(error) * load(w.readout + j));
                store(row + j, gradient);
                store(w.by[INNER_BIAS] + j, load(w.by[INNER_BIAS] + j) + gradient);
            }
        }
        *w.by[HEAD_BIAS] = total;
        if (!residual) {
            std::copy_n(w.by_hidden, size, w.by[HEAD]);
            return loss;
        }
        std::copy_n(w.by_first, size, w.by[HEAD]);
        for (Index i = 0; i < size; i++) add_scaled(w.by[HEAD], w.by_hidden[i], of(OUTER) + i * size, size);
        add_scaled(w.by[HEAD], total, of(OUTER_BIAS), size);
        add_scaled(w.by[OUTER_BIAS], total, of(HEAD), size);
        return loss;
    }

    // Through the square layer, the normalisation and the first ReLU.
    void backward_square() {
        transpose(size, of(INNER), w.transposed);
        for_blocks(p.batch, [&](Index i, Index count) {
            float* out = w.gradient + i * size;
            any_block<false>(count, size, w.hidden + i * size, size, w.transposed, size, out, nullptr);
            for (Index b = i; b < i + count; b++) {
                float *row = w.gradient + b * size, *first = w.first + b * size, *sums = w.by[FIRST_BIAS];
                if (residual) backward_normalise(b);
                for (Index j = 0; j < size; j += LANES) {
                    const Vector gradient = positive(load(first + j), load(row + j));
                    store(row + j, gradient);
                    store(sums + j, load(sums + j) + gradient);
                }
            }
        });
    }

    void backward_normalise(Index b) {
        float *row = w.gradient + b * size, *by_gain = w.by[GAIN], *by_shift = w.by[SHIFT];
        const float *in = w.first + b * size, *gain = of(GAIN), *head = of(HEAD);
        const Vector centre = all(w.centre[b]), scale = all(w.scale[b]), error = all(w.errors[b]);
        Vector sum = all(0), along = all(0);
        for (Index j = 0; j < size; j += LANES) {
            const Vector by_output = load(row + j), normal = (load(in + j) - centre) * scale;
            const Vector by_normal = by_output * load(gain + j);
            store(by_gain + j, load(by_gain + j) + by_output * normal);
            store(by_shift + j, load(by_shift + j) + by_output);
            sum += by_normal;
            along += by_normal * normal;
        }
        const Vector mean = all(_mm512_reduce_add_ps(sum) / size), slope = all(_mm512_reduce_add_ps(along) / size);
        for (Index j = 0; j < size; j += LANES) {
            const Vector normal = (load(in + j) - centre) * scale, by_normal = load(row + j) * load(gain + j);
            store(row + j, scale * (by_normal - mean - normal * slope) + error * load(head + j));  // and the skip
        }
    }

    // The weight gradient inputs^T gradients [count, size], a block of rows at a time, each used at once.
    void update_matrix(int parameter, Index count, const float* inputs, const float* gradients) {
        const bool projected = p.left[parameter];  // the average then has to wait for the whole matrix
        for_blocks(count, [&](Index i, Index rows) {
            prefetch_state(parameter, i * size, rows * size);
            any_block<true>(rows, p.batch, inputs + i, count, gradients, size, w.rows, w.gathered);
            adam(parameter, i * size, rows * size, w.rows);
            if (!projected) average(parameter, i * size, rows * size);
        });
        if (projected) scale_and_average(parameter, project(parameter));
    }

    void update_outer() {
        for (Index i = 0; i < size; i++) {
            std::fill_n(w.rows, size, 0.f);
            add_scaled(w.rows, w.by_hidden[i], of(HEAD), size);
            adam(OUTER, i * size, size, w.rows);
        }
        scale_and_average(OUTER, project(OUTER));
    }

    // While rows i to i + count of the batch are worked on, ask for as large a share of what comes next.
    void prefetch_share(const float* from, Index total, Index i, Index count) const {
        prefetch(from + total * i / p.batch, total * count / p.batch);
    }

    // Ask for what Adam will need while the product is under way.
    void prefetch_state(int parameter, Index begin, Index count) const {
        const Index offset = n * p.size(parameter) + begin;
        for (float* const* tensors : {p.means, p.squares, p.averaged}) prefetch(tensors[parameter] + offset, count);
    }

    void adam(int parameter, Index begin, Index count, const float* gradients) const {
        const Index offset = n * p.size(parameter) + begin;
        float *__restrict weight = p.online[parameter] + offset, *__restrict mean = p.means[parameter] + offset;
        float* __restrict square = p.squares[parameter] + offset;
        const float keep = p.second_decay, epsilon = p.epsilon, rate = step_rate, scale = step_scale;
        const float first = 1 - p.first_decay, second = 1 - p.second_decay;
        for (Index j = 0; j < count; j++) {
            const float g = gradients[j];
            mean[j] += first * (g - mean[j]);
            square[j] = keep * square[j] + second * g * g;
            weight[j] -= rate * mean[j] / (std::sqrt(square[j] * scale) + epsilon);
        }
    }

    // One power iteration. Returns the factor that brings the largest singular value to 1 (1 if not projected).
    float project(int parameter) {
        if (!p.left[parameter]) return 1.f;
        const float* weight = of(parameter);
        float *left = p.left[parameter] + n * size, *right = p.right[parameter] + n * size;
        std::fill_n(w.image, size, 0.f);
        for (Index i = 0; i < size; i++) add_scaled(w.image, left[i], weight + i * size, size);
        const float norm = std::max(std::sqrt(dot(w.image, w.image, size)), 1e-12f);
        for (Index j = 0; j < size; j++) right[j] = w.image[j] / norm;
        for (Index i = 0; i < size; i++) w.image[i] = dot(weight + i * size, right, size);
        const float sigma = std::sqrt(dot(w.image, w.image, size));
        for (Index i = 0; i < size; i++) left[i] = w.image[i] / sigma;
        return 1 / sigma;
    }

    void scale_and_average(int parameter, float factor) const {
        const Index count = p.size(parameter);
        float* weight = p.online[parameter] + n * count;
        for (Index j = 0; j < count; j++) weight[j] *= factor;
        average(parameter, 0, count);
    }

    // Move the averaged weights towards the weights.
    void average(int parameter, Index begin, Index count) const {
        const Index offset = n * p.size(parameter) + begin;
        const float *__restrict weight = p.online[parameter] + offset, tau = p.tau;
        float* __restrict averaged = p.averaged[parameter] + offset;
        for (Index j = 0; j < count; j++) averaged[j] += tau * (weight[j] - averaged[j]);
    }
};

template <class Body>
void for_members(const Problem& p, Body body) {
    const unsigned mode = _mm_getcsr();  // whether denormal numbers count: as the caller has it, in all threads
#pragma omp parallel for schedule(static) num_threads(p.threads)
    for (Index n = 0; n < p.members; n++) {
        thread_local Workspace space;
        _mm_setcsr(mode);
        space.fit(p.batch, p.hidden);
        body(n, Member(p, n, space));
    }
}

}  // namespace

// x [batch, inputs] -> values [members, batch] of the averaged networks.
extern "C" void target_values(const Problem* p, const float* x, float* values) {
    for_members(*p, [&](Index n, Member member) { member.forward(p->averaged, x, values + n * p->batch); });
}

// One update of all members towards target [batch]. Leaves values [members, batch] before it, and losses [members].
extern "C" void learn(const Problem* p, const float* x, const float* target, float rate, float square_scale,
                      float* values, float* losses) {
    for_members(*p, [&](Index n, Member member) {
        float* own = values + n * p->batch;
        member.forward(p->online, x, own);
        losses[n] = member.learn(x, own, target, rate, square_scale);
    });
}
