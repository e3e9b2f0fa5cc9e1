// Logistic loss and probabilities of margins already computed.
#include "bindings.hpp"
#include "losses.hpp"
#include "samples.hpp"

namespace squall {
namespace {

nb::tuple logistic_loss(const Input& margins, const Input& labels, const Input& weights) {
    const auto z = vector<float>(margins, "margins");
    const Samples<Logistic> samples(labels, weights, z.size());
    double loss_sum = 0, weight_sum = 0;
    {
        nb::gil_scoped_release release;
        for (size_t i = 0; i < z.size(); ++i) {
            const auto [label, weight] = samples.at(static_cast<int64_t>(i));
            if (weight != 0) loss_sum += weight * Logistic::at(z[i], label).loss;
            weight_sum += weight;
        }
    }
    return nb::make_tuple(loss_sum, weight_sum);
}

nb::object logistic_probabilities(const Input& margins) {
    const auto z = vector<float>(margins, "margins");
    Owned<float> result(z.size());
    {
        nb::gil_scoped_release release;
        for (size_t i = 0; i < z.size(); ++i) result[i] = static_cast<float>(sigmoid(z[i]));
    }
    return to_numpy(std::move(result));
}

}  // namespace

void bind_logistic(nb::module_& m) {
    m.def("logistic_loss", &logistic_loss, nb::arg("margins").noconvert(), nb::arg("labels").noconvert(),
          nb::arg("weights").noconvert().none());
    m.def("logistic_probabilities", &logistic_probabilities, nb::arg("margins").noconvert());
}

}  // namespace squall
