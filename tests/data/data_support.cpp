#include "data/data_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "data/tokenizer_training.h"

namespace tessera::data::test {

TemporaryFolder::TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_data_XXXXXX").string();
    path_ = mkdtemp(name.data());
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
}

std::string TemporaryFolder::file(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
}

std::vector<std::string> TemporaryFolder::names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
        found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
}

std::string sample_text(int paragraphs) {
    const char* words[] = {"horse",     "a large animal", "of the", "which is", "Latin",
                           "see under", "to carry",       "mosaic", "tile",     "in water"};
    std::string text;
    unsigned state = 12345;
    const auto next = [&] { return (state = state * 1103515245U + 12345U) >> 16; };
    for (int p = 0; p < paragraphs; ++p) {
        text += fmt::format("{}{} {}.\n", p == 0 ? "" : "\n\n", words[next() % 10], p);
        for (int line = 0; line < 3; ++line) {
            text += "   ";
            for (int k = 0; k < 6; ++k) text += fmt::format("{}{}", words[next() % 10], k == 5 ? ".\n" : " ");
        }
        text += "      Syn: naïve – café";
    }
    return text;
}

Tokenizer small_tokenizer(const TemporaryFolder& folder, std::int64_t vocab_size) {
    TrainTokenizerArgs args;
    args.source.paths = {folder.file("tokenizer_corpus.txt", sample_text(200))};
    args.output_path = folder.path("small.model");
    args.vocab_size = vocab_size;
    train_tokenizer(args);
    return Tokenizer::load(args.output_path);
}

namespace {

hid_t type_named(const std::string& name) {
    if (name == "u8") return H5T_STD_U8LE;
    if (name == "u16") return H5T_STD_U16LE;
    if (name == "i32") return H5T_STD_I32LE;
    if (name == "i64") return H5T_STD_I64LE;
    if (name == "u32be") return H5T_STD_U32BE;
    if (name == "i16be") return H5T_STD_I16BE;
    return H5T_IEEE_F32LE;
}

}  // namespace

void write_foreign(const std::string& path, const std::vector<std::int64_t>& tokens, const ForeignShard& how) {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hsize_t extent[2] = {tokens.size(), 1};
    int dimensions = 1;
    if (how.row_length > 0) {
        dimensions = 2;
        extent[0] = tokens.size() / static_cast<std::size_t>(how.row_length);
        extent[1] = static_cast<hsize_t>(how.row_length);
    }
    const hid_t space = H5Screate_simple(dimensions, extent, nullptr);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    if (how.layout != Layout::contiguous) {
        const hsize_t chunk[2] = {std::min<hsize_t>(extent[0], 7), std::min<hsize_t>(extent[1], 5)};
        H5Pset_chunk(creation, dimensions, chunk);
    }
    if (how.layout == Layout::compressed) H5Pset_deflate(creation, 6);
    const hid_t data =
            H5Dcreate2(file, how.dataset.c_str(), type_named(how.type), space, H5P_DEFAULT, creation, H5P_DEFAULT);
    EXPECT_GE(H5Dwrite(data, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, tokens.data()), 0);
    if (!how.document_offsets.empty()) {
        const hsize_t count = how.document_offsets.size();
        const hid_t offsets_space = H5Screate_simple(1, &count, nullptr);
        const hid_t offsets = H5Dcreate2(file, "document_offsets", H5T_STD_U64LE, offsets_space, H5P_DEFAULT,
                                         H5P_DEFAULT, H5P_DEFAULT);
        H5Dwrite(offsets, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, how.document_offsets.data());
        H5Dclose(offsets);
        H5Sclose(offsets_space);
    }
    H5Dclose(data);
    H5Pclose(creation);
    H5Sclose(space);
    H5Fclose(file);
}

void write_shard(const std::string& path, const std::vector<std::vector<std::int32_t>>& documents,
                 std::int64_t vocab_size, std::int32_t eod_id, const std::string& sha256) {
    ShardWriter writer(
            {.path = path, .identity = {.vocab_size = vocab_size, .eod_id = eod_id, .tokenizer_sha256 = sha256}});
    for (const auto& document : documents)
        writer.append_document(document, static_cast<std::int64_t>(3 * document.size()));
    writer.close();
    writer.publish();
}

std::vector<std::int64_t> counting(std::int64_t count, std::int64_t modulus) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
    for (std::int64_t k = 0; k < count; ++k) tokens[static_cast<std::size_t>(k)] = k % modulus;
    return tokens;
}

}  // namespace tessera::data::test
