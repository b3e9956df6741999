// Links everything an installed keynest brings: the library, the engine behind it, Highway.
#include <keynest/model.h>
#include <keynest/policy.h>
#include <keynest/session.h>

#include <cstdio>

int main() {
  const auto spec = keynest::PolicySpec::parse("keydiff:keep_last=20%");
  if (!spec || spec->method != "keydiff") return std::puts("the spec was not understood"), 1;

  const auto model = keynest::Model::load("no-such-model.gguf");
  if (model) return std::puts("a missing file was loaded"), 1;

  std::printf("%s\n%s\n", keynest::version_text().c_str(), model.error().message.c_str());
  return 0;
}
