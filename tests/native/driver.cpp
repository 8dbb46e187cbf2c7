// One update of critics that are read from standard input and written to standard output: for processors that are
// emulated, without Python. The format is that of test_arm.py.

#include <cstdio>

#include "critic_update.cpp"

namespace {

template <class Number>
std::vector<Number> read(size_t count) {
    std::vector<Number> numbers(count);
    if (std::fread(numbers.data(), sizeof(Number), count, stdin) != count) std::exit(1);
    return numbers;
}

void write(const std::vector<float>& numbers) { std::fwrite(numbers.data(), sizeof(float), numbers.size(), stdout); }

}  // namespace

int main() {
    Problem p{};
    const auto sizes = read<int64_t>(7);
    p.members = sizes[0], p.batch = sizes[1], p.inputs = sizes[2], p.hidden = sizes[3];
    p.atoms = sizes[4], p.targets = sizes[5], p.drop_below = sizes[6], p.threads = 1;
    const auto constants = read<float>(11);  // those of the problem, then the step's rate and scale
    std::copy_n(constants.begin(), 9, &p.loss_scale);
    auto streams = read<int32_t>(8);  // keys and calls of the masks, of online and averaged critics
    for (int n = 0; n < 2; n++) {
        p.online_streams[n] = {&streams[2 * n], &streams[2 * n + 1]};
        p.averaged_streams[n] = {&streams[4 + 2 * n], &streams[5 + 2 * n]};
    }
    std::vector<std::vector<float>> tensors;
    tensors.reserve(6 * PARAMETERS);
    for (auto* group : {p.online, p.averaged, p.means, p.squares, p.left, p.right})
        for (int n = 0; n < PARAMETERS; n++) {
            const auto count = read<int64_t>(1)[0];
            tensors.push_back(read<float>(count));
            group[n] = count ? tensors.back().data() : nullptr;
        }
    const auto x = read<float>(p.batch * p.inputs), target = read<float>(p.batch * std::max<Index>(1, p.targets));
    std::vector<float> before(p.members * p.batch * p.atoms), values(before.size()), losses(p.members);
    target_values(&p, x.data(), before.data());
    learn(&p, x.data(), target.data(), constants[9], constants[10], values.data(), losses.data(), nullptr, nullptr);
    for (const auto& result : {before, values, losses}) write(result);
    for (const auto& tensor : tensors) write(tensor);
}
