#pragma once
#include <string_view>

#include "core/dtype.h"
#include "train/config.h"

// How the config spells the values of its enums. Internal to src/train.

namespace tessera::train {

template <typename E>
struct EnumName {
    E value;
    std::string_view name;
};

/// Every value of an enum with its spelling in the config.
template <typename E>
struct EnumNames;
template <>
struct EnumNames<ModelFamily> {
    static constexpr EnumName<ModelFamily> kAll[] = {{ModelFamily::gpt2, "gpt2"}, {ModelFamily::llama, "llama"}};
};
template <>
struct EnumNames<OptimizerName> {
    static constexpr EnumName<OptimizerName> kAll[] = {{OptimizerName::adamw, "adamw"}};
};
template <>
struct EnumNames<ScheduleStyle> {
    static constexpr EnumName<ScheduleStyle> kAll[] = {{ScheduleStyle::constant, "constant"},
                                                       {ScheduleStyle::linear, "linear"},
                                                       {ScheduleStyle::cosine, "cosine"},
                                                       {ScheduleStyle::wsd, "wsd"},
                                                       {ScheduleStyle::inverse_sqrt, "inverse_sqrt"}};
};
template <>
struct EnumNames<NonFinitePolicy> {
    static constexpr EnumName<NonFinitePolicy> kAll[] = {{NonFinitePolicy::stop, "stop"},
                                                         {NonFinitePolicy::skip, "skip"}};
};
template <>
struct EnumNames<ProgressStyle> {
    static constexpr EnumName<ProgressStyle> kAll[] = {{ProgressStyle::automatic, "auto"},
                                                       {ProgressStyle::bar, "bar"},
                                                       {ProgressStyle::lines, "lines"},
                                                       {ProgressStyle::none, "none"}};
};
template <>
struct EnumNames<BackendChoice> {
    static constexpr EnumName<BackendChoice> kAll[] = {{BackendChoice::automatic, "auto"}, {BackendChoice::cpu, "cpu"}};
};
template <>
struct EnumNames<OffloadTarget> {
    static constexpr EnumName<OffloadTarget> kAll[] = {{OffloadTarget::none, "none"}};
};
template <>
struct EnumNames<RecomputeGranularity> {
    static constexpr EnumName<RecomputeGranularity> kAll[] = {{RecomputeGranularity::none, "none"}};
};
template <>
struct EnumNames<PipelineScheduleName> {
    static constexpr EnumName<PipelineScheduleName> kAll[] = {{PipelineScheduleName::one_forward_one_backward, "1f1b"}};
};
template <>
struct EnumNames<core::DType> {
    static constexpr EnumName<core::DType> kAll[] = {
            {core::DType::f32, "f32"}, {core::DType::bf16, "bf16"}, {core::DType::f16, "f16"}};
};

}  // namespace tessera::train
