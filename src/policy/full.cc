// full: every entry is kept; the control all other methods are measured against.
#include "policy/registry.h"

namespace keynest {

MethodRow full_method() {
  MethodRow row;
  row.name = "full";
  row.help = "keeps everything: no budget";
  return row;
}

}  // namespace keynest
