// SPDX-License-Identifier: Apache-2.0

#include "onehop/c/topology.h"
#include "onehop/diagnose.h"

#include "c_api/convert.h"
#include "c_api/guard.h"

using namespace onehop;
using namespace onehop::c_api;

static_assert(ONEHOP_HEALTH_WORKS == static_cast<int>(Health::works));
static_assert(ONEHOP_HEALTH_FAILS == static_cast<int>(Health::fails));
static_assert(ONEHOP_HEALTH_NOT_APPLICABLE == static_cast<int>(Health::not_applicable));

struct onehop_diagnosis {
  GpuDiagnosis diagnosis;
};

extern "C" {

onehop_status_t onehop_diagnosis_of_gpus(onehop_diagnosis_t** diagnosis) {
  return produce(diagnosis, "diagnosis", [] { return new onehop_diagnosis{diagnose_gpus()}; });
}

void onehop_diagnosis_destroy(onehop_diagnosis_t* diagnosis) {
  delete diagnosis;
}

int onehop_diagnosis_usable(const onehop_diagnosis_t* diagnosis) {
  return diagnosis != nullptr && diagnosis->diagnosis.usable ? 1 : 0;
}

const char* onehop_diagnosis_summary(const onehop_diagnosis_t* diagnosis) {
  return diagnosis == nullptr ? "" : diagnosis->diagnosis.summary.c_str();
}

void onehop_finding_init(onehop_finding_t* finding, size_t size) {
  init_options(finding, size, onehop_finding_t{});
}

size_t onehop_diagnosis_finding_count(const onehop_diagnosis_t* diagnosis) {
  return diagnosis == nullptr ? 0 : diagnosis->diagnosis.findings.size();
}

onehop_status_t onehop_diagnosis_finding(const onehop_diagnosis_t* diagnosis, size_t index,
                                         onehop_finding_t* finding) {
  return answer(finding, "finding", [&](onehop_finding_t& out) {
    const Finding& found = entry(deref(diagnosis, "diagnosis").diagnosis.findings, index, "finding");
    out.section = found.section.c_str();
    out.name = found.name.c_str();
    out.health = static_cast<onehop_health_t>(found.health);
    out.detail = found.detail.c_str();
    out.remedy = found.remedy.c_str();
    out.essential = found.essential ? 1 : 0;
  });
}

}  // extern "C"
