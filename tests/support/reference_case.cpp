#include "support/reference_case.h"

#include <hdf5.h>

#include <stdexcept>

namespace tessera::support {
namespace {

class File {
public:
    explicit File(const std::string& path) : id_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {
        if (id_ < 0) throw std::runtime_error("cannot open " + path);
    }
    ~File() { H5Fclose(id_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    double number(const char* attribute) const {
        const hid_t id = H5Aopen(id_, attribute, H5P_DEFAULT);
        double value = 0;
        H5Aread(id, H5T_NATIVE_DOUBLE, &value);
        H5Aclose(id);
        return value;
    }
    bool has(const char* attribute) const { return H5Aexists(id_, attribute) > 0; }
    std::int64_t integer(const char* attribute) const { return static_cast<std::int64_t>(number(attribute)); }

    std::vector<double> read(const std::string& dataset, std::vector<std::int64_t>* shape = nullptr) const {
        const hid_t id = H5Dopen2(id_, dataset.c_str(), H5P_DEFAULT);
        if (id < 0) throw std::runtime_error("no dataset " + dataset);
        const hid_t space = H5Dget_space(id);
        hsize_t extents[8] = {};
        const int rank = H5Sget_simple_extent_dims(space, extents, nullptr);
        std::size_t count = 1;
        for (int axis = 0; axis < rank; ++axis) {
            count *= extents[axis];
            if (shape) shape->push_back(static_cast<std::int64_t>(extents[axis]));
        }
        std::vector<double> values(count);
        H5Dread(id, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
        H5Sclose(space);
        H5Dclose(id);
        return values;
    }

private:
    hid_t id_;
};

struct Source {
    std::string dataset;           ///< Hugging Face name
    bool transposed = false;       ///< stored [in, out]
    std::int64_t column_part = 0;  ///< which third of c_attn's outputs
    std::int64_t column_parts = 1;
};

std::vector<double> extract(const File& file, const std::string& group, const Source& source) {
    std::vector<std::int64_t> shape;
    const std::vector<double> values = file.read(group + "/" + source.dataset, &shape);
    const std::int64_t rows = shape.size() > 1 ? shape[0] : 1;
    const std::int64_t columns = shape.size() > 1 ? shape[1] : shape[0];
    const std::int64_t part = columns / source.column_parts;
    const std::int64_t first = source.column_part * part;
    std::vector<double> out;
    if (!source.transposed) {
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t column = first; column < first + part; ++column) {
                out.push_back(values[static_cast<std::size_t>(row * columns + column)]);
            }
        }
        return out;
    }
    for (std::int64_t column = first; column < first + part; ++column) {
        for (std::int64_t row = 0; row < rows; ++row)
            out.push_back(values[static_cast<std::size_t>(row * columns + column)]);
    }
    return out;
}

void add_norm(std::map<std::string, Source>& sources, const std::string& ours, const std::string& theirs, bool bias) {
    sources[ours + ".weight"] = {.dataset = theirs + ".weight"};
    if (bias) sources[ours + ".bias"] = {.dataset = theirs + ".bias"};
}

std::map<std::string, Source> gpt2_sources(const layers::ModelConfig& model) {
    std::map<std::string, Source> sources;
    sources["embedding.word.weight"] = {.dataset = "transformer.wte.weight"};
    sources["embedding.position.weight"] = {.dataset = "transformer.wpe.weight"};
    add_norm(sources, "final_norm", "transformer.ln_f", true);
    for (std::int64_t i = 0; i < model.num_layers; ++i) {
        const std::string ours = "layers." + std::to_string(i) + ".";
        const std::string theirs = "transformer.h." + std::to_string(i) + ".";
        add_norm(sources, ours + "input_norm", theirs + "ln_1", true);
        add_norm(sources, ours + "post_attention_norm", theirs + "ln_2", true);
        const char* parts[] = {"query", "key", "value"};
        for (int part = 0; part < 3; ++part) {
            const std::string name = ours + "attention." + parts[part];
            sources[name + ".weight"] = {theirs + "attn.c_attn.weight", true, part, 3};
            sources[name + ".bias"] = {theirs + "attn.c_attn.bias", false, part, 3};
        }
        const std::pair<const char*, const char*> linears[] = {
                {"attention.projection", "attn.c_proj"}, {"mlp.fc1", "mlp.c_fc"}, {"mlp.fc2", "mlp.c_proj"}};
        for (const auto& [to, from] : linears) {
            sources[ours + to + ".weight"] = {.dataset = theirs + from + ".weight", .transposed = true};
            sources[ours + to + ".bias"] = {.dataset = theirs + from + ".bias"};
        }
    }
    return sources;
}

std::map<std::string, Source> llama_sources(const layers::ModelConfig& model) {
    std::map<std::string, Source> sources;
    sources["embedding.word.weight"] = {.dataset = "model.embed_tokens.weight"};
    sources["head.weight"] = {.dataset = "lm_head.weight"};
    add_norm(sources, "final_norm", "model.norm", false);
    for (std::int64_t i = 0; i < model.num_layers; ++i) {
        const std::string ours = "layers." + std::to_string(i) + ".";
        const std::string theirs = "model.layers." + std::to_string(i) + ".";
        add_norm(sources, ours + "input_norm", theirs + "input_layernorm", false);
        add_norm(sources, ours + "post_attention_norm", theirs + "post_attention_layernorm", false);
        const std::pair<const char*, const char*> linears[] = {{"attention.query", "self_attn.q_proj"},
                                                               {"attention.key", "self_attn.k_proj"},
                                                               {"attention.value", "self_attn.v_proj"},
                                                               {"attention.projection", "self_attn.o_proj"},
                                                               {"mlp.gate", "mlp.gate_proj"},
                                                               {"mlp.up", "mlp.up_proj"},
                                                               {"mlp.fc2", "mlp.down_proj"}};
        for (const auto& [to, from] : linears) sources[ours + to + ".weight"] = {.dataset = theirs + from + ".weight"};
    }
    return sources;
}

std::vector<std::int32_t> to_ids(const std::vector<double>& values) {
    return {values.begin(), values.end()};
}

}  // namespace

ReferenceCase load_reference_case(const std::string& name) {
    const File file(std::string(TESSERA_TEST_DATA) + "/" + name + ".h5");
    ReferenceCase c;
    const bool llama = name.rfind("llama", 0) == 0;
    layers::ModelConfig& m = c.model;
    m.family = llama ? layers::Family::llama : layers::Family::gpt2;
    m.num_layers = file.integer("num_layers");
    m.hidden_size = file.integer("hidden_size");
    m.num_attention_heads = file.integer("num_heads");
    m.num_kv_heads = file.has("num_kv_heads") ? file.integer("num_kv_heads") : m.num_attention_heads;
    m.ffn_hidden_size = file.has("ffn_hidden_size") ? file.integer("ffn_hidden_size") : 4 * m.hidden_size;
    m.seq_length = file.integer("seq_length");
    m.vocab_size = file.integer("vocab_size");
    m.norm_eps = file.number("norm_eps");
    m.tie_embeddings = !llama;
    if (llama) m.rope_theta = file.number("rope_theta");
    c.lr = file.number("lr");
    c.min_lr = file.number("min_lr");
    c.beta1 = file.number("beta1");
    c.beta2 = file.number("beta2");
    c.eps = file.number("eps");
    c.weight_decay = file.number("weight_decay");
    c.clip_grad_norm = file.number("clip_grad_norm");
    c.warmup_steps = file.integer("warmup_steps");
    c.steps = file.integer("steps");
    c.batch_size = file.integer("micro_batch_size");
    for (const auto& [logical, source] : llama ? llama_sources(m) : gpt2_sources(m)) {
        const auto values = extract(file, "weights", source);
        c.weights[logical] = {values.begin(), values.end()};
        c.grads0[logical] = extract(file, "step0/grads", source);
        c.final_weights[logical] = extract(file, "final", source);
    }
    c.tokens = to_ids(file.read("batches/tokens"));
    c.targets = to_ids(file.read("batches/targets"));
    c.loss0 = file.read("step0/loss").at(0);
    c.logits0 = file.read("step0/logits");
    c.loss = file.read("train/loss");
    c.grad_norm = file.read("train/grad_norm");
    c.lr_at = file.read("train/lr");
    return c;
}

}  // namespace tessera::support
