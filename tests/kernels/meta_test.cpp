// The account of work: the same on a device that computes and on meta, and as the formulas say.
#include <algorithm>

#include "operation_cases.h"

namespace tessera::kernels {
namespace {

using core::DeviceType;
using core::DType;
using core::Tensor;
using support::Device;

TEST(Account, MetaCountsWhatTheCpuDoes) {
    for (const DType dtype : support::kFloatingDTypes) {
        Device cpu(DeviceType::cpu);
        Device meta(DeviceType::meta);
        for (const OperationCase& c : operation_cases()) {
            c.run(cpu, dtype);
            c.run(meta, dtype);
            for (std::size_t i = 0; i < kOps; ++i) {
                const auto op = static_cast<Op>(i);
                const OpTotals& computed = cpu.backend().account()[op];
                const OpTotals& counted = meta.backend().account()[op];
                EXPECT_EQ(computed.calls, counted.calls) << c.name << ": " << name_of(op);
                EXPECT_EQ(computed.flops, counted.flops) << c.name << ": " << name_of(op);
                EXPECT_EQ(computed.bytes, counted.bytes) << c.name << ": " << name_of(op);
            }
        }
        for (std::size_t i = 0; i < kOps; ++i) {
            const auto op = static_cast<Op>(i);
            EXPECT_GT(meta.backend().account()[op].calls, 0) << "no case runs " << name_of(op);
            EXPECT_GT(meta.backend().account()[op].bytes, 0) << name_of(op);
        }
    }
}

/// What the CPU's operations hold while they run is counted on meta: a peak there is the peak here.
TEST(Account, MetaReservesTheWorkspaceOfTheCpu) {
    std::int64_t most = 0;
    for (const DType dtype : support::kFloatingDTypes) {
        for (const OperationCase& c : operation_cases()) {
            Device cpu(DeviceType::cpu);
            Device meta(DeviceType::meta);
            c.run(cpu, dtype);
            c.run(meta, dtype);
            const core::MemoryStatistics computed = cpu.backend().pool().statistics();
            const core::MemoryStatistics counted = meta.backend().pool().statistics();
            const std::int64_t workspace = computed[core::MemoryCategory::workspace].peak_bytes;
            EXPECT_EQ(workspace, counted[core::MemoryCategory::workspace].peak_bytes)
                    << c.name << " " << core::name_of(dtype);
            EXPECT_EQ(computed.peak_bytes, counted.peak_bytes) << c.name << " " << core::name_of(dtype);
            EXPECT_EQ(counted[core::MemoryCategory::workspace].current_bytes, 0) << c.name;
            most = std::max(most, workspace);
        }
    }
    EXPECT_GT(most, 0);
}

TEST(Account, MetasClockFollowsTheSlowerOfComputeAndMemory) {
    Device meta(DeviceType::meta);
    EXPECT_EQ(meta.stream().time_s(), 0);
    const MetaDevice device;
    const Tensor x = meta.random({1024, 1024}, DType::f32);
    const Tensor weight = meta.random({1024, 1024}, DType::f32);
    Tensor y = meta.make({1024, 1024}, DType::f32);
    linear_forward(meta.backend(), meta.stream(), {.x = x, .weight = weight, .y = y});
    const double compute = 2.0 * 1024 * 1024 * 1024 / device.peak_flops;
    EXPECT_DOUBLE_EQ(meta.stream().time_s(), compute);
    scale(meta.backend(), meta.stream(), y, 2.0F);
    EXPECT_DOUBLE_EQ(meta.stream().time_s(), compute + 2.0 * 4 * 1024 * 1024 / device.bandwidth_bytes_s);
    EXPECT_DOUBLE_EQ(meta.backend().account().total().seconds, meta.stream().time_s());

    Device cpu(DeviceType::cpu);
    Tensor z = cpu.random({100}, DType::f32);
    scale(cpu.backend(), cpu.stream(), z, 2.0F);
    EXPECT_EQ(cpu.stream().time_s(), 0);
    EXPECT_EQ(cpu.backend().account()[Op::scale].calls, 1);
    cpu.backend().account().reset();
    EXPECT_EQ(cpu.backend().account().total().calls, 0);
}

TEST(Account, AnIllegalCallIsNotCounted) {
    Device meta(DeviceType::meta);
    const Tensor x = meta.random({4, 8}, DType::f32);
    const Tensor weight = meta.random({6, 7}, DType::f32);
    Tensor y = meta.make({4, 6}, DType::f32);
    EXPECT_THROW(linear_forward(meta.backend(), meta.stream(), {.x = x, .weight = weight, .y = y}), core::ShapeError);
    EXPECT_EQ(meta.backend().account().total().calls, 0);
}

/// 2·T·I·O for each of the three products; counted_outputs takes the place of O.
TEST(Account, LinearCountsTwoFlopsPerMultiplyAdd) {
    Device meta(DeviceType::meta);
    constexpr std::int64_t kTokens = 19;
    constexpr std::int64_t kInputs = 76;
    constexpr std::int64_t kOutputs = 131;
    const Tensor x = meta.random({kTokens, kInputs}, DType::bf16);
    const Tensor weight = meta.random({kOutputs, kInputs}, DType::bf16);
    Tensor dx = meta.make({kTokens, kInputs}, DType::bf16);
    Tensor y = meta.make({kTokens, kOutputs}, DType::bf16);
    Tensor dweight = meta.make({kOutputs, kInputs}, DType::f32);
    OpAccount& account = meta.backend().account();
    for (const std::int64_t counted : {std::int64_t{0}, std::int64_t{127}}) {
        account.reset();
        const double flops = 2.0 * kTokens * kInputs * static_cast<double>(counted == 0 ? kOutputs : counted);
        linear_forward(meta.backend(), meta.stream(), {.x = x, .weight = weight, .y = y, .counted_outputs = counted});
        linear_dgrad(meta.backend(), meta.stream(), {.dy = y, .weight = weight, .dx = dx, .counted_outputs = counted});
        linear_wgrad(meta.backend(), meta.stream(), {.x = x, .dy = y, .dweight = dweight, .counted_outputs = counted});
        EXPECT_EQ(account[Op::linear_forward].flops, flops);
        EXPECT_EQ(account[Op::linear_dgrad].flops, flops);
        EXPECT_EQ(account[Op::linear_wgrad].flops, flops);
        EXPECT_EQ(account.total().flops, 3 * flops);
        EXPECT_EQ(account[Op::linear_forward].bytes,
                  2.0 * (kTokens * kInputs + kInputs * kOutputs + kTokens * kOutputs));
    }
}

/// Forward 2·N·K·ΣL² (two products over the causal half), backward twice that, cached 4·N·K·Σ(past + i + 1).
TEST(Account, AttentionCountsTheCausalHalf) {
    Device meta(DeviceType::meta);
    const HeadLayout heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 19};
    const TokenMap map = support::token_map(meta, {{.length = 7}, {.length = 1}, {.length = 13}}, 2, 16);
    const Tensor qkv = meta.random({23, heads.packed_width()}, DType::f32);
    Tensor out = meta.make({23, 76}, DType::f32);
    Tensor lse = meta.make({4, 23}, DType::f32);
    Tensor dqkv = meta.make(qkv.shape(), DType::f32);
    OpAccount& account = meta.backend().account();
    attention_forward(meta.backend(), meta.stream(),
                      {.heads = heads, .tokens = map, .dropout = {}, .qkv = qkv, .out = out, .lse = &lse});
    attention_backward(meta.backend(), meta.stream(),
                       {.heads = heads,
                        .tokens = map,
                        .dropout = {},
                        .qkv = qkv,
                        .out = out,
                        .lse = lse,
                        .dout = out,
                        .dqkv = dqkv});
    const double squares = 7 * 7 + 1 + 13 * 13;
    EXPECT_EQ(account[Op::attention_forward].flops, 2.0 * 4 * 19 * squares);
    EXPECT_EQ(account[Op::attention_backward].flops, 4.0 * 4 * 19 * squares);
    Tensor k_cache = meta.make({30, 38}, DType::f32);
    Tensor v_cache = meta.make({30, 38}, DType::f32);
    cached_attention(meta.backend(), meta.stream(),
                     {.heads = heads, .past = 5, .qkv = qkv, .k_cache = k_cache, .v_cache = v_cache, .out = out});
    EXPECT_EQ(account[Op::cached_attention].flops, 4.0 * 4 * 19 * (23 * 5 + 23 * 24 / 2));
    // Operands once each: 152 columns of q, k and v, 76 of q or out, 38 of k or v, 4 of lse.
    EXPECT_EQ(account[Op::attention_forward].bytes, 4.0 * 23 * (152 + 76 + 4));
    EXPECT_EQ(account[Op::attention_backward].bytes, 4.0 * 23 * (2 * 152 + 2 * 76 + 4));
    EXPECT_EQ(account[Op::cached_attention].bytes, 4.0 * (2 * 28 * 38 + 23 * (152 + 76)));
}

TEST(Account, NothingElseHasModelFlops) {
    Device meta(DeviceType::meta);
    for (const OperationCase& c : operation_cases()) c.run(meta, DType::f32);
    const std::vector<Op> counted = {Op::linear_forward,    Op::linear_dgrad,       Op::linear_wgrad,
                                     Op::attention_forward, Op::attention_backward, Op::cached_attention};
    for (std::size_t i = 0; i < kOps; ++i) {
        const auto op = static_cast<Op>(i);
        const bool expected = std::find(counted.begin(), counted.end(), op) != counted.end();
        EXPECT_EQ(meta.backend().account()[op].flops > 0, expected) << name_of(op);
    }
}

TEST(Account, EveryOperationHasAName) {
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < kOps; ++i) names.push_back(name_of(static_cast<Op>(i)));
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
    EXPECT_EQ(name_of(Op::linear_forward), "linear_forward");
    EXPECT_EQ(name_of(Op::bias_dropout_residual_norm_backward), "bias_dropout_residual_norm_backward");
    EXPECT_EQ(name_of(Op::sum), "sum");
}

}  // namespace
}  // namespace tessera::kernels
