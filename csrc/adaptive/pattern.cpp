#include "adaptive/pattern.h"

#include <algorithm>

namespace tn::adaptive {
uint64_t hash_programs(const std::vector<Step>& steps, size_t begin, size_t end) noexcept {
  uint64_t state = 0x9E3779B97F4A7C15ULL;
  for (size_t i = begin; i < end; ++i) {
    state = mix(state, steps[i].program->id);
  }
  return state;
}

bool Pattern::operator==(const Pattern& other) const {
  return std::equal(steps.begin(), steps.end(), other.steps.begin(), other.steps.end(),
                    [](const Step& left, const Step& right) {
                      return left.program == right.program && left.inputs == right.inputs;
                    });
}

uint64_t Pattern::hash() const noexcept {
  uint64_t state = hash_programs(steps, 0, steps.size());
  for (const Step& step : steps) {
    for (const Source& source : step.inputs) {
      state = mix(state,
                  static_cast<uint64_t>(static_cast<uint32_t>(source.step)) << 32 | source.index);
    }
  }
  return state;
}

void Recorder::add(const runtime::Task& task, uint64_t slot) {
  if (empty()) {
    stream_ = task.stream;
    queue_ = task.outputs[0]->producer().queue;
    started_ = std::chrono::steady_clock::now();
  }
  const auto number = static_cast<uint32_t>(size());
  Step step;
  step.program = task.program;
  step.inputs.reserve(task.inputs.size());
  for (size_t i = 0; i < task.inputs.size(); ++i) {
    const runtime::Producer& producer = task.inputs[i]->producer();
    const int32_t from = producer.queue == queue_ ? step_at(producer.number) : -1;
    if (from >= 0) {
      ++pattern_.steps[static_cast<size_t>(from)].uses[producer.output];
      step.inputs.push_back({from, producer.output});
    } else {
      step.inputs.push_back({-1, outside(producer, number, static_cast<uint32_t>(i))});
    }
  }
  step.uses.assign(task.outputs.size(), 0);
  pattern_.steps.push_back(std::move(step));
  slots_.push_back(slot);
  auto& outputs = outputs_.emplace_back();
  for (const runtime::ValuePtr& output : task.outputs) {
    outputs.emplace_back(output);
  }
}

int32_t Recorder::step_at(uint64_t slot) const noexcept {
  const auto found = std::lower_bound(slots_.begin(), slots_.end(), slot);
  return found != slots_.end() && *found == slot ? static_cast<int32_t>(found - slots_.begin())
                                                 : -1;
}

uint32_t Recorder::outside(const runtime::Producer& producer, uint32_t step, uint32_t input) {
  const auto [it, added] =
      outside_.emplace(producer, static_cast<uint32_t>(pattern_.outside.size()));
  if (added) {
    pattern_.outside.push_back({step, input, 0});
  }
  ++pattern_.outside[it->second].uses;
  return it->second;
}

uint64_t Recorder::context() const noexcept {
  const size_t count = size();
  return hash_programs(pattern_.steps, count - std::min(count, kContext), count);
}

uint64_t Recorder::opening() const noexcept {
  return size() < kContext ? 0 : hash_programs(pattern_.steps, 0, kContext);
}

std::vector<Place> Stretch::wanted() const {
  std::vector<Place> places;
  for (size_t step = 0; step < outputs.size(); ++step) {
    for (size_t output = 0; output < outputs[step].size(); ++output) {
      const auto& value = outputs[step][output];
      // Of a value that is gone the object is still there, for this weak reference.
      if (value.use_count() != 0 || value._unsafe_get_target()->last_wanted() > end) {
        places.push_back({static_cast<uint32_t>(step), static_cast<uint32_t>(output)});
      }
    }
  }
  return places;
}

Stretch Recorder::take() {
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - started_;
  Stretch stretch{std::move(pattern_), std::move(outputs_), slots_.back() + 1, time.count()};
  clear();
  return stretch;
}

void Recorder::clear() {
  pattern_ = {};
  slots_.clear();
  outside_.clear();
  outputs_.clear();
}

size_t Recorder::HashProducer::operator()(const runtime::Producer& producer) const noexcept {
  return static_cast<size_t>(
      mix(mix(reinterpret_cast<uintptr_t>(producer.queue), producer.number),  // NOLINT: as a number
          producer.output));
}

}  // namespace tn::adaptive
