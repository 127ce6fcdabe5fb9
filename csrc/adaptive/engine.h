// Looks at a launch queue's tasks in windows: recognises those that came before and runs each as
// one program; records the others while they run op by op.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "adaptive/library.h"
#include "runtime/lookahead.h"

namespace tn::adaptive {

class Engine final : public runtime::Lookahead {
 public:
  Engine(runtime::TaskRunner& runner, int ordinal);
  ~Engine() override;

  void take(uint64_t slot) override;
  bool holding() const override { return held_ != 0; }
  void pause() override;

  const Library& library() const noexcept { return library_; }
  // All engines of the process, for reports.
  static std::vector<const Engine*> all();

 private:
  // Whether the task continues a window from the tasks held, or begins one; it is held then, or the
  // window is complete and has run.
  bool hold(uint64_t slot);
  bool fits(const Window& window, const runtime::Task& task, uint64_t slot);
  // Nothing held will become a longer window: runs it all.
  void settle();
  void run_window(const WindowPtr& window, uint64_t begin);
  // False: nothing has happened.
  bool run_fused(const WindowPtr& window, uint64_t begin);
  void run_singles(Window& window, uint64_t begin, bool timed);
  // What somebody outside refers to although the window's program does not give it.
  std::vector<Place> missing(const Window& window, uint64_t begin);
  std::vector<Place> missing_for_long(const Window& window, uint64_t begin);
  bool launch(const Window& window, uint64_t begin);
  // Runs a task by itself and records it.
  void run_single(uint64_t slot);
  // The stretch being recorded ends.
  void close(End end);
  // The stretch that ended before the present task goes to the library.
  void learn();
  void look_for_period();

  runtime::TaskRunner& runner_;
  Library library_;
  Cuts cuts_;
  Recorder recorder_;
  size_t close_at_ = 0;  // size of the stretch at which it ends; 0: not known
  bool junk_ = false;    // the stretch holds more than one period: not to be learned
  std::optional<Stretch> closed_;
  End closed_end_ = End::kOther;
  // The tasks held: `held_` of them from `begin_` on, and the windows they may become.
  uint64_t begin_ = 0;
  size_t held_ = 0;
  std::vector<WindowPtr> candidates_;
  WindowPtr complete_;  // the longest window they hold from their first on
};

}  // namespace tn::adaptive
