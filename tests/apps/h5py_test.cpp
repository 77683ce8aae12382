// Shards cross between this program and Python's h5py, both ways (scripts/setup --test installs python3-h5py).
#include "apps/program_support.h"

namespace tessera {
namespace {

using support::Outcome;

class H5py : public support::ProgramTest {
protected:
    /// Runs a Python script in the test's folder; returns what it printed on both streams.
    Outcome python(const std::string& script) const {
        support::write_file(folder / "script.py", script);
        const std::string output = (folder / "python.out").string();
        const std::string command = "cd '" + folder.string() + "' && /usr/bin/python3 script.py >'" + output + "' 2>&1";
        const int status = std::system(command.c_str());
        return {.exit_code = status, .out = support::read_file(output), .err = ""};
    }
};

TEST_F(H5py, WhatItWritesCanBeTrainedOn) {
    const Outcome written = python(R"(
import h5py, numpy as np
tokens = (np.arange(5000) * 7 + np.arange(5000) // 13) % 290
with h5py.File("py_compressed.h5", "w") as f:
    f.create_dataset("tokens", data=tokens.astype("i8"), compression="gzip", chunks=(777,))
with h5py.File("py_rows.h5", "w") as f:
    f["input_ids"] = tokens.reshape(50, 100).astype(">u4")
with h5py.File("py_named.h5", "w") as f:
    f["ids"] = tokens.astype("u2")
)");
    ASSERT_EQ(written.exit_code, 0) << written.out;
    std::vector<std::string> losses;
    for (const std::string name : {"py_compressed", "py_rows", "py_named"}) {
        std::vector<std::string> overrides = {"--data.train=" + (folder / (name + ".h5")).string(),
                                              "--run.train_steps=3"};
        if (name == "py_named") overrides.push_back("--data.tokens_dataset=ids");
        std::string text = support::read_file(config(name));
        for (const char* key : {"validation = ", "tokenizer = "}) {
            const std::size_t begin = text.find(key);
            text.erase(begin, text.find('\n', begin) + 1 - begin);
        }
        text.erase(text.find("[evaluation]"));
        support::write_file(folder / (name + ".toml"), text);
        overrides.push_back("--model.vocab_size=290");
        const Outcome outcome = train(folder / (name + ".toml"), overrides);
        ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
        std::string metrics = support::read_file(run_directory(name) / "metrics.jsonl");
        const std::size_t at = metrics.find("\"loss\":");
        losses.push_back(metrics.substr(at, metrics.find(',', at) - at));
    }
    // The same tokens, whatever holds them.
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(losses[0], losses[2]);
}

TEST_F(H5py, ReadsOurShards) {
    const Outcome read = python(R"(
import h5py, numpy as np
with h5py.File("text_train_00000.h5") as f:
    tokens, offsets = f["tokens"][:], f["document_offsets"][:]
    assert tokens.dtype == np.uint16 and tokens.ndim == 1, tokens.dtype
    assert offsets.dtype == np.uint64 and offsets[0] == 0 and offsets[-1] == len(tokens)
    assert np.all(np.diff(offsets.astype(np.int64)) > 0)
    eod = int(f.attrs["eod_id"])
    assert np.all(tokens[offsets[1:] - 1] == eod) and np.sum(tokens == eod) == len(offsets) - 1
    assert int(f.attrs["vocab_size"]) == 300 and tokens.max() < 300
)");
    EXPECT_EQ(read.exit_code, 0) << read.out;
}

}  // namespace
}  // namespace tessera
