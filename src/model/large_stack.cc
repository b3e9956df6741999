#include "model/large_stack.h"

#include <pthread.h>

#include <cstddef>

namespace keynest {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 20;

void* call(void* work) {
  (*static_cast<const std::function<void()>*>(work))();
  return nullptr;
}

}  // namespace

void run_on_large_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  pthread_t thread;
  bool started = false;
  if (pthread_attr_init(&attributes) == 0) {
    void* argument = const_cast<std::function<void()>*>(&work);
    started = pthread_attr_setstacksize(&attributes, kStackBytes) == 0 &&
              pthread_create(&thread, &attributes, call, argument) == 0;
    pthread_attr_destroy(&attributes);
  }
  if (started) {
    pthread_join(thread, nullptr);
  } else {
    work();
  }
}

}  // namespace keynest
