// Tells google/rdma-unit-test what a device of ours does where the suite leaves it to devices, and
// which of its tests ask for something else: the suite skips those. docs/suites.md says why, and how
// the suite is run. Linked with any of its programs, this registers itself.

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "infiniband/verbs.h"
#include "internal/introspection_registrar.h"
#include "public/introspection.h"

namespace {

using rdma_unit_test::IntrospectionRegistrar;
using rdma_unit_test::NicIntrospection;

class Device : public NicIntrospection {
 public:
  Device(const std::string& name, const ibv_device_attr& attr)
      : NicIntrospection(name, attr) {
    Skip("IBA C10-96 refuses work in this state",
         {{"QpStateTest", "PostSendReset"},
          {"QpStateTest", "PostRecvReset"},
          {"QpStateTest", "PostSendInit"},
          {"QpStateTest", "PostSendRtr"}});
    Skip("a window that is not rebound stays as it was, and a Read of it, too",
         {{"MwType2AdvancedTest", "Rebind"}});
  }

  bool SupportsReRegMr() const override { return true; }

  // The fixtures of windows look at nothing else: of a test that is left out they hear "no".
  bool SupportsType1() const override {
    return !IsLeftOut() && NicIntrospection::SupportsType1();
  }
  bool SupportsType2() const override {
    return !IsLeftOut() && NicIntrospection::SupportsType2();
  }

  // What the suite calls slow is a device in software: a test of two million messages that looks at
  // every byte of each sends a thousand then.
  bool IsSlowNic() const override { return true; }

 protected:
  using Tests = std::initializer_list<TestcaseKey>;

  void Skip(std::string_view reason, Tests tests) {
    // Tells whether a test still has to be left out.
    if (std::getenv("RUN_LEFT_OUT") != nullptr) return;
    for (const auto& test : tests) deviations_.emplace(test, reason);
  }

  const absl::flat_hash_map<TestcaseKey, std::string>& GetDeviations()
      const override {
    return deviations_;
  }

 private:
  bool IsLeftOut() const {
    return testing::UnitTest::GetInstance()->current_test_info() != nullptr &&
           KnownIssue().has_value();
  }

  absl::flat_hash_map<TestcaseKey, std::string> deviations_;
};

// RC is iWARP over TCP.
class OverStream : public Device {
 public:
  OverStream(const std::string& name, const ibv_device_attr& attr)
      : Device(name, attr) {
    Skip("an error ends the stream, and so the queue pair at the other end",
         {{"LoopbackRcQpTest", "FlushErrorPollTogether"}});
    Skip("the Write is refused before the message that takes the receive",
         {{"LoopbackRcQpTest", "WriteImmDataInvalidRKey"}});
    Skip("a Write that asks for no completion is not waited for",
         {{"LoopbackRcQpTest", "UnsignaledWriteInvalidRkey"}});
    Skip("the address is that of a region, which only a valid R_Key tells",
         {{"LoopbackRcQpTest", "FetchAddUnalignedInvalidRKey"},
          {"LoopbackRcQpTest", "CompareSwapUnalignedInvalidRKey"}});
  }

  // The Terminate says that an STag cannot be invalidated.
  bool NoNakOnSendInvalidateErrors() const override { return false; }

  // A connection waits for its other end.
  bool BuffersMessagesWhenNotReadyToReceive() const override { return true; }
};

// An RNIC is asked for what iWARP has: reliable connections.
class Rnic : public OverStream {
 public:
  Rnic(const std::string& name, const ibv_device_attr& attr)
      : OverStream(name, attr) {
    Skip("a Write or Send is complete when TCP has it: no answer can fail it",
         {{"AsyncEventTest", "WriteRKeyViolation"},
          {"BufferMrTest", "WriteExceedFront"},
          {"BufferMrTest", "WriteExceedRear"},
          {"BufferMwTest", "WriteExceedFront"},
          {"BufferMwTest", "WriteExceedRear"},
          {"LoopbackRcQpTest", "BadRecvAddr"},
          {"LoopbackRcQpTest", "BadRecvLkey"},
          {"LoopbackRcQpTest", "RecvOnDeregisteredRegion"},
          {"LoopbackRcQpTest", "RecvPayloadExceedMr"},
          {"LoopbackRcQpTest", "SendWithTooSmallRecv"},
          {"LoopbackRcQpTest", "SendWithInvalidateBadRkey"},
          {"LoopbackRcQpTest", "SendWithInvalidateType1Rkey"},
          {"LoopbackRcQpTest", "SendWithInvalidateWrongQp"},
          {"LoopbackRcQpTest", "WriteInvalidRkey"},
          {"LoopbackRcQpTest", "WriteUnregisteredAddress"},
          {"MessagingAccessTest", "MissingDstLocalWrite"},
          {"PdRcLoopbackMrTest", "BasicWriteMrOtherPdRemote"},
          {"PdRcLoopbackMrTest", "SendMrOtherPdRemote"},
          {"PdSrqTest", "SrqRecvMrSrqMismatch"},
          {"PdType1MwTest", "WriteMwOtherPd"},
          {"RdmaAccessTest", "MissingDstRemoteRead"},
          {"RdmaAccessTest", "MissingDstRemoteWrite"}});
    Skip("a Write or Send is complete when TCP has it, maybe before it arrives",
         {{"LoopbackRcQpTest", "BasicWrite"},
          {"LoopbackRcQpTest", "Type1MWWrite"},
          {"LoopbackRcQpTest", "Type2MWWrite"},
          {"ConstantOpTest", "Basic"},
          {"MixedOpsTest", "Basic"},
          {"QpOversubscriptionTest", "StressTest"},
          {"SimpleRdmaTest", "MixedOpSize"},
          {"SimpleRdmaTest", "MixedOpType"},
          {"SimpleRdmaTest", "Write"},
          {"VaryMtuTest", "VaryMtuTest"}});
    Skip("memory regions keep the protection domain of an RNIC",
         {{"PdTest", "MrRefCount"}});
    Skip("a message without a receive ends an RNIC's connection",
         {{"LoopbackRcQpTest", "SendRnr"},
          {"LoopbackRcQpTest", "SendRnrInfiniteRetries"},
          {"LoopbackRcQpTest", "SendWithInvalidateNoBuffer"},
          {"LoopbackRcQpTest", "WriteImmDataRnR"},
          {"RnrNackTest", "RetrySuccess"},
          {"SrqTest", "SendRnr"},
          {"SrqMultiThreadTest", "MultiThreadedSrqLoopback"}});
    Skip("an RNIC's queue pair begins in Init, and its attributes are others",
         {{"QpTest", "ModifyInvalidResetToRtrTransition"},
          {"QpTest", "ModifyBadResetToInitStateTransition"},
          {"QpTest", "ModifyBadInitToRtrStateTransition"},
          {"QpTest", "ModifyBadRtrToRtsStateTransition"},
          {"QpStateTest", "DestroyFromReset"},
          {"ResponderQpStateTest", "ResponderNotReadyToReceive"}});
  }
};

template <class Kind>
NicIntrospection* Make(const std::string& name, const ibv_device_attr& attr) {
  return new Kind(name, attr);
}

NicIntrospection* MakeRoce(const std::string& name,
                           const ibv_device_attr& attr) {
  const char* wire = std::getenv("IWARP_WIRE");
  if (wire != nullptr && std::string_view(wire) == "roce") {
    return new Device(name, attr);
  }
  return new OverStream(name, attr);
}

bool Register() {
  auto& registrar = IntrospectionRegistrar::GetInstance();
  registrar.Register("iwarp", Make<Rnic>);
  // The suite calls every device `roce...` by its vendor and part instead.
  registrar.Register("roce[", MakeRoce);
  return true;
}

const bool registered = Register();

}  // namespace
