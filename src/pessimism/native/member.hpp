// One member of the ensemble: its values, and one update from the forward pass to the averaged weights.

#pragma once

#include "layers.hpp"
#include "loss.hpp"
#include "team.hpp"
#include "weights.hpp"

constexpr auto nothing = [](Index, Index) {};

template <class Products>
class Member {
  public:
    Member(const Problem& problem, Index index, Workspace<Products>& space, Scratch<Products>& scratch, const Team& team)
        : p(problem), n(index), w(space), own(scratch), team(team), weights(problem, index),
          layers(problem, index, space, scratch.units), size(padded(p.hidden)), stride(stride_of(p.hidden)),
          residual(layers.residual), folded(layers.folded) {}

    // Values of the network with the given weights, under the masks of its dropout, if any.
    void evaluate(float* const* tensors, const Masks& masks, const float* x, float* values) {
        forward(tensors, masks, x, values, false, [](Index, Range) {});
    }

    // The gradient [batch, inputs] of sum(slopes values), for slopes [batch, atoms]. Leaves the values, too.
    void input_gradient(const Masks& masks, const float* x, const float* slopes, float* values, float* gradient) {
        const auto given = [&](Index b, float* errors) { return std::copy_n(slopes + b * p.atoms, p.atoms, errors), 0.f; };
        forward(p.online, masks, x, values, true, [&](Index c, Range rows) { backward_head(c, rows, given); });
        backward_square();
        w.first_layer.set(Matrix(of(FIRST), p.inputs, p.hidden).t(), team, p.parts);
        const Index line = padded(p.inputs);
        for_chunks(p.batch, [&](Index, Range rows) {
            const Matrix behind(w.gradient + rows.begin * stride, rows.count(), p.hidden, stride);
            Products::multiply(own.left, behind, w.first_layer, own.rows, line, nothing);
            for (Index b = 0; b < rows.count(); b++)
                std::copy_n(own.rows + b * line, p.inputs, gradient + (rows.begin + b) * p.inputs);
        });
    }

    // One step of Adam towards the target. Leaves the values before it, and the loss.
    void learn(const Masks& masks, const float* x, const float* target, float rate, float square_scale, float* values,
               float* loss) {
        weights.rate = rate;
        weights.square_scale = square_scale;
        const auto loss_gradient = [&](Index b, float* errors) {
            return td_loss(p, values + b * p.atoms, target + b * std::max(p.targets, Index(1)), errors);
        };
        forward(p.online, masks, x, values, true, [&](Index c, Range rows) { backward_head(c, rows, loss_gradient); });
        backward_square();
        Matrix inputs(layers.square_inputs(), p.batch, p.hidden, stride);
        inputs.by_line = folded ? w.errors : nullptr;
        update_matrix(INNER, inputs, active(), folded ? w.readout : nullptr);
        update_matrix(FIRST, {x, p.batch, p.inputs}, {w.gradient, p.batch, p.hidden, stride}, nullptr);
        const Sums sums = w.sums(p, 0);
        team.alone([&] { finish_sums(sums); });
        if (residual) update_outer(sums);
        team.alone([&] {
            for (int parameter : VECTORS)
                if (net[parameter]) update_vector(parameter, sums.by[parameter]);
            update_vector(HEAD, w.head_gradient);
            update_vector(HEAD_BIAS, sums.by[HEAD_BIAS]);
            *loss = *sums.loss;
        });
    }

  private:
    const Problem& p;
    const Index n;
    Workspace<Products>& w;
    Scratch<Products>& own;
    const Team& team;
    Weights weights;
    Layers layers;
    const Index size, stride;  // of a line, without and with the space to the next
    const bool residual, folded;
    float* const* net = nullptr;

    float* of(int parameter) const { return weights.of(net, parameter); }

    // Which of the square layer's units are positive, once `backward_head` has said so; if not folded, the gradient of
    // the layer's sums.
    Matrix active() const {
        Matrix mask(w.hidden, p.batch, p.hidden, stride);
        mask.binary = folded;
        return mask;
    }

    template <class Meanwhile>
    void multiply(const Matrix& a, const typename Products::Right& b, float* c, Meanwhile meanwhile) {
        Products::multiply(own.left, a, b, c, stride, meanwhile);
    }

    // Products with a mask may be sums of chosen rows: of the rows in the square layer's place, a chunk of columns at a time.
    static bool chooses(const Matrix& mask) { return Products::CHOOSES && mask.binary; }

    template <class Meanwhile>
    void choose(Index chunk, float* c, Index line, Meanwhile meanwhile) {
        if constexpr (Products::CHOOSES) vectors::choose(w.choices, w.square_layer, chunk, c, line, meanwhile);
    }

    // Call `body(chunk, rows)` for this thread's share of some rows.
    template <class Body>
    void for_chunks(Index rows, Body body) const {
        const Range mine = team.share(chunks_of(rows));
        for (Index c = mine.begin; c < mine.end; c++) body(c, {c * CHUNK, std::min(rows, (c + 1) * CHUNK)});
    }

    // Evaluate the network with the given weights, some transitions at a time; `after(chunk, rows)` is called when their
    // values are there. Activations stay in the workspace if they are to be kept.
    template <class After>
    void forward(float* const* tensors, const Masks& masks, const float* x, float* values, bool keep, After after) {
        net = tensors;
        layers.masks = masks;
        copy_vectors();
        w.first_layer.set({of(FIRST), p.inputs, p.hidden}, team, p.parts);
        w.square_layer.set({of(INNER), p.hidden, p.hidden}, team, p.parts);
        for_chunks(p.batch, [&](Index c, Range rows) {
            const Index start = (keep ? rows.begin : team.rank * CHUNK) * stride;
            float *first = w.first + start, *hidden = w.hidden + start;
            multiply({x + rows.begin * p.inputs, rows.count(), p.inputs}, w.first_layer, first, nothing);
            for (Index b = 0; b < rows.count(); b++) layers.activate_first(rows.begin + b, start + b * stride);
            multiply({layers.square_inputs() + start, rows.count(), p.hidden, stride}, w.square_layer, hidden, nothing);
            for (Index b = 0; b < rows.count(); b++) {
                float* to = values + (rows.begin + b) * p.atoms;
                layers.activate_square(rows.begin + b, hidden + b * stride, first + b * stride, to);
            }
            after(c, rows);
        });
    }

    // The network's vectors, padded, and what the head makes of the square layer's units.
    void copy_vectors() {
        team.alone([&] {
            for (int parameter : VECTORS)
                if (net[parameter]) {
                    std::fill_n(w.vector[parameter], size, 0.f);
                    std::copy_n(of(parameter), p.hidden, w.vector[parameter]);
                }
            std::fill_n(w.vector[HEAD], p.atoms * size, 0.f);
            std::fill_n(w.readout, p.atoms * size, 0.f);
            for (Index k = 0; k < p.atoms; k++) {
                float* head = w.vector[HEAD] + k * size;
                for (Index i = 0; i < p.hidden; i++) head[i] = of(HEAD)[i * p.atoms + k];
                w.offset[k] = of(HEAD_BIAS)[k] + (residual ? dot(w.vector[OUTER_BIAS], head, size) : 0);
            }
        });
        const Range mine = team.share(p.hidden);
        for (Index k = 0; k < p.atoms; k++)
            for (Index i = mine.begin; i < mine.end; i++) {
                const float* head = w.vector[HEAD] + k * size;
                w.readout[k * size + i] = residual ? dot(of(OUTER) + i * p.hidden, head, p.hidden) : head[i];
            }
    }

    // From the loss, whose value and gradient `slope` knows, to the square layer's sums.
    template <class Slope>
    void backward_head(Index c, Range rows, Slope slope) {
        const Sums sums = w.sums(p, c);
        std::fill(sums.begin, sums.end, 0.f);
        for (Index b = rows.begin; b < rows.end; b++) {
            *sums.loss += slope(b, w.errors + b * p.atoms);
            layers.backward_head(b, sums);
        }
    }

    // Through the square layer, and back to the first layer's sums.
    void backward_square() {
        Matrix matrix(of(INNER), p.hidden, p.hidden);
        matrix.by_column = folded ? w.readout : nullptr;
        w.square_layer.set(matrix.t(), team, p.parts);
        if (chooses(active())) {
            w.choices.set(active(), team);
            for_chunks(p.hidden, [&](Index c, Range units) { choose(c, w.gradient + units.begin, stride, nothing); });
            team.wait();
        }
        for_chunks(p.batch, [&](Index c, Range rows) {
            if (!chooses(active()))
                multiply(active().strip(rows.begin, rows.count()), w.square_layer, w.gradient + rows.begin * stride, nothing);
            const Sums sums = w.sums(p, c);
            for (Index b = rows.begin; b < rows.end; b++) layers.backward_first(b, sums);
        });
    }

    // The weight gradient inputs^T gradients, times factors of its columns if any, some rows at a time. A chunk is used
    // while the next one is computed: tiles and vectors work side by side.
    void update_matrix(int parameter, const Matrix& inputs, const Matrix& gradients, const float* factors) {
        w.square_layer.set(chooses(gradients) ? inputs : gradients, team, p.parts);
        if (chooses(gradients)) w.choices.set(gradients.t(), team);
        Index ready = 0;  // the chunk that waits
        Range waiting{0, 0};
        const auto use = [&](Index share, Index shares) {
            const Range rows = part(waiting.count(), share, shares);
            for (Index r = rows.begin; r < rows.end; r++) {
                float* row = own.rows + r * stride;
                if (factors)
                    for (Index j = 0; j < size; j += LANES) store(row + j, load(row + j) * load(factors + j));
                weights.update_row(parameter, waiting.begin + r, row, w.images + ready * size);
            }
        };
        for_chunks(inputs.columns, [&](Index c, Range rows) {
            std::fill_n(w.images + c * size, size, 0.f);
            const auto meanwhile = [&](Index share, Index shares) {
                const Range some = part(rows.count(), share, shares);
                weights.prefetch_rows(parameter, rows.begin + some.begin, rows.begin + some.end);
                use(share, shares);
            };
            if (chooses(gradients)) {
                choose(c, own.columns, CHUNK, meanwhile);
                vectors::turn(own.columns, size, own.next_rows, stride);
            } else {
                multiply(inputs.t().strip(rows.begin, rows.count()), w.square_layer, own.next_rows, meanwhile);
            }
            std::swap(own.rows, own.next_rows);
            ready = c, waiting = rows;
        });
        use(0, 1);
        project(parameter);
    }

    // Add up the chunks in order, and what the sums over the batch still need. The head's gradients are stored as the head.
    void finish_sums(const Sums& sums) {
        for (Index c = 1; c < w.chunks; c++) add_scaled(sums.begin, 1, w.sums(p, c).begin, sums.end - sums.begin);
        if (folded)
            for (Index j = 0; j < size; j++) sums.by[INNER_BIAS][j] *= w.readout[j];
        for (Index k = 0; k < p.atoms; k++) {
            float *by_head = sums.by[HEAD] + k * size, *by_hidden = sums.by_hidden + k * size;
            const float total = sums.by[HEAD_BIAS][k];
            if (residual) {
                for (Index i = 0; i < p.hidden; i++) add_scaled(by_head, by_hidden[i], of(OUTER) + i * p.hidden, p.hidden);
                add_scaled(by_head, total, w.vector[OUTER_BIAS], size);
                add_scaled(sums.by[OUTER_BIAS], total, w.vector[HEAD] + k * size, size);
            }
            for (Index i = 0; i < p.hidden; i++)
                w.head_gradient[i * p.atoms + k] = residual ? by_head[i] : by_hidden[i];
        }
    }

    void update_vector(int parameter, const float* gradient) const {
        weights.adam(parameter, 0, p.size(parameter), gradient);
        weights.average(parameter, 0, p.size(parameter));
    }

    // The outer matrix's gradient has a rank of no more than the number of atoms.
    void update_outer(const Sums& sums) {
        for_chunks(p.hidden, [&](Index c, Range rows) {
            std::fill_n(w.images + c * size, size, 0.f);
            float* slopes = own.next_rows;  // [atoms]
            for (Index i = rows.begin; i < rows.end; i++) {
                for (Index k = 0; k < p.atoms; k++) slopes[k] = sums.by_hidden[k * size + i];
                for (Index j = 0; j < size; j += LANES) store(own.rows + j, layers.combined(w.vector[HEAD] + j, slopes));
                weights.update_row(OUTER, i, own.rows, w.images + c * size);
            }
        });
        project(OUTER);
    }

    // One power iteration, from the image of the left singular vector on; then the matrix is scaled so that its largest
    // singular value is 1, and averaged. Nothing is done where nothing is projected.
    void project(int parameter) {
        if (!p.left[parameter]) return;
        float *weight = of(parameter), *left = p.left[parameter] + n * p.hidden, *right = p.right[parameter] + n * p.hidden;
        team.alone([&] {
            for (Index c = 1; c < chunks_of(p.hidden); c++) add_scaled(w.images, 1, w.images + c * size, p.hidden);
            const float norm = std::max(std::sqrt(dot(w.images, w.images, p.hidden)), 1e-12f);
            for (Index j = 0; j < p.hidden; j++) right[j] = w.images[j] / norm;
        });
        const Range mine = team.share(p.hidden);
        for (Index i = mine.begin; i < mine.end; i++) w.image[i] = dot(weight + i * p.hidden, right, p.hidden);
        team.wait();
        const float sigma = std::sqrt(dot(w.image, w.image, p.hidden));
        for (Index i = mine.begin; i < mine.end; i++) {
            left[i] = w.image[i] / sigma;
            weights.scale_row(parameter, i, 1 / sigma);
        }
    }
};
