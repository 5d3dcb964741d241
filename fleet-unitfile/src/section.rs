//! Instances of sections, and the sections whose instances are things of their own.

use crate::diagnostic::Span;
use crate::option::OptionView;
use crate::options::Options;

/// Sections of files for networkd and udev that may occur several times. Each of them is a thing of
/// its own: an address, a route, a peer. No unit has a section of these names.
const REPEATED: &[&str] = &[
    "Address",
    "BFIFO",
    "BridgeFDB",
    "BridgeMDB",
    "BridgeVLAN",
    "CAKE",
    "ControlledDelay",
    "DHCPServerStaticLease",
    "DeficitRoundRobinScheduler",
    "DeficitRoundRobinSchedulerClass",
    "EnhancedTransmissionSelection",
    "FairQueueing",
    "FairQueueingControlledDelay",
    "FlowQueuePIE",
    "GenericRandomEarlyDetection",
    "HeavyHitterFilter",
    "HierarchyTokenBucket",
    "HierarchyTokenBucketClass",
    "IPv6AddressLabel",
    "IPv6PREF64Prefix",
    "IPv6Prefix",
    "IPv6RoutePrefix",
    "L2TPSession",
    "MACsecReceiveAssociation",
    "MACsecReceiveChannel",
    "MACsecTransmitAssociation",
    "Neighbor",
    "NetworkEmulator",
    "NextHop",
    "PFIFO",
    "PFIFOFast",
    "PFIFOHeadDrop",
    "PIE",
    "QDisc",
    "QuickFairQueueing",
    "QuickFairQueueingClass",
    "Route",
    "RoutingPolicyRule",
    "SR-IOV",
    "StochasticFairBlue",
    "StochasticFairnessQueueing",
    "TokenBucketFilter",
    "TrivialLinkEqualizer",
    "WireGuardPeer",
];

/// Returns `true` if each header of a section begins a thing of its own.
pub(crate) fn is_repeated(section: &str) -> bool {
    REPEATED.contains(&section)
}

/// One header of a section, with the options below it.
#[derive(Clone, Debug)]
pub struct SectionInstance<'a> {
    name: &'a str,
    span: Span,
    options: Options<'a>,
}

impl<'a> SectionInstance<'a> {
    pub(crate) fn new(name: &'a str, span: Span, options: Options<'a>) -> Self {
        Self { name, span, options }
    }

    /// Returns the name of the section, without brackets.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the span of the header. If the header continues over several lines, the span covers
    /// only the first line.
    pub fn header_span(&self) -> Span {
        self.span
    }

    /// Returns the options below the header, in order.
    pub fn options(&self) -> Options<'a> {
        self.options.clone()
    }

    /// Returns the value of the last option with this name below the header, or `None` if that value
    /// is empty.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let last = self.options().rfind(|option| option.name() == name);
        last.map(OptionView::value).filter(|value| !value.is_empty())
    }
}
