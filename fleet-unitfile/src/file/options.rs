//! The options of a unit file in order, by section, and as lists.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;

use crate::file::index::Entry;
use crate::file::option::OptionView;
use crate::file::text::Text;
use crate::syntax::diagnostic::Span;

/// An iterator over the options of a [`UnitFile`](crate::UnitFile), in source order.
///
/// Each option is parsed from the source only when the iterator reaches it. [`get`](Self::get)
/// gives access by index.
///
/// ```
/// use fleet_unitfile::UnitFile;
///
/// let unit = UnitFile::parse("[Service]\nUser=web\nNice=5\n")?;
/// let options = unit.options();
/// assert_eq!(options.len(), 2);
/// assert_eq!(options.get(1).map(|option| option.value()), Some("5"));
/// assert!(options.map(|option| option.name()).eq(["User", "Nice"]));
/// # Ok::<(), fleet_unitfile::ParseError>(())
/// ```
#[derive(Clone)]
pub struct Options<'a> {
    text: &'a Text,
    left: Range<usize>,
}

impl<'a> Options<'a> {
    pub(crate) fn new(text: &'a Text) -> Self {
        Self { text, left: 0..text.options.len() }
    }

    /// The options at a range of indexes.
    pub(crate) fn range(text: &'a Text, left: Range<usize>) -> Self {
        Self { text, left }
    }

    /// Returns `true` if no options are left.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Returns the option at an index, counted from the first remaining one.
    pub fn get(&self, index: usize) -> Option<OptionView<'a>> {
        let place = self.left.start.checked_add(index).filter(|place| *place < self.left.end)?;
        self.entry(place).map(|entry| OptionView::new(self.text, &entry))
    }

    /// Returns the options with this section and any of these names.
    pub(crate) fn named<'n, const N: usize>(
        self,
        section: &'n str,
        names: [&'n str; N],
    ) -> impl DoubleEndedIterator<Item = OptionView<'a>> {
        let Self { text, left } = self;
        left.filter_map(move |place| {
            let may_be_named =
                |entry: &Entry<'_>| names.iter().any(|name| text.may_be_named(entry, name));
            let entry = text.options.get(place).filter(may_be_named)?;
            let option = OptionView::new(text, &entry);
            let is_one = names.contains(&option.name()) && option.section() == section;
            is_one.then_some(option)
        })
    }

    #[inline]
    fn entry(&self, place: usize) -> Option<Entry<'a>> {
        self.text.options.get(place)
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = OptionView<'a>;

    #[inline]
    fn next(&mut self) -> Option<OptionView<'a>> {
        self.nth(0)
    }

    #[inline]
    fn nth(&mut self, index: usize) -> Option<OptionView<'a>> {
        let entry = self.left.nth(index).and_then(|place| self.entry(place));
        entry.map(|entry| OptionView::new(self.text, &entry))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for Options<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.left.next_back().and_then(|place| self.entry(place));
        entry.map(|entry| OptionView::new(self.text, &entry))
    }
}

impl ExactSizeIterator for Options<'_> {}

impl FusedIterator for Options<'_> {}

impl PartialEq for Options<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.clone().eq(other.clone())
    }
}

impl Eq for Options<'_> {}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

/// Older names of lists, each with its current name.
const OLD_NAMES: [(&str, &str); 6] = [
    ("BindTo", "BindsTo"),
    ("InaccessibleDirectories", "InaccessiblePaths"),
    ("PropagateReloadFrom", "ReloadPropagatedFrom"),
    ("PropagateReloadTo", "PropagatesReloadTo"),
    ("ReadOnlyDirectories", "ReadOnlyPaths"),
    ("ReadWriteDirectories", "ReadWritePaths"),
];

/// Groups of options that fill the same list. An empty value of one of them resets the whole list.
const SHARED_LISTS: [&[&str]; 9] = [
    &["BindPaths", "BindReadOnlyPaths"],
    &["InaccessibleDirectories", "InaccessiblePaths"],
    &["LoadCredential", "LoadCredentialEncrypted"],
    &["ReadOnlyDirectories", "ReadOnlyPaths"],
    &["ReadWriteDirectories", "ReadWritePaths"],
    &["SetCredential", "SetCredentialEncrypted"],
    &TIMER_TRIGGERS,
    &PATH_TRIGGERS,
    &SOCKET_LISTENERS,
];

/// The options of a timer that set its triggers.
pub(crate) const TIMER_TRIGGERS: [&str; 6] = [
    "OnCalendar",
    "OnActiveSec",
    "OnBootSec",
    "OnStartupSec",
    "OnUnitActiveSec",
    "OnUnitInactiveSec",
];

/// The conditions that a path unit watches.
pub(crate) const PATH_TRIGGERS: [&str; 5] =
    ["PathExists", "PathExistsGlob", "PathChanged", "PathModified", "DirectoryNotEmpty"];

/// The options of a socket that set its addresses. `Accept=yes` is possible only for the first two,
/// because they use connections.
pub(crate) const SOCKET_LISTENERS: [&str; 8] = [
    "ListenStream",
    "ListenSequentialPacket",
    "ListenDatagram",
    "ListenFIFO",
    "ListenSpecial",
    "ListenNetlink",
    "ListenMessageQueue",
    "ListenUSBFunction",
];

/// Dependency options of `[Unit]`, which an empty value never resets.
const NEVER_RESET: [&str; 23] = [
    "After",
    "Before",
    "BindTo",
    "BindsTo",
    "Conflicts",
    "JoinsNamespaceOf",
    "OnFailure",
    "OnSuccess",
    "PartOf",
    "PropagateReloadFrom",
    "PropagateReloadTo",
    "PropagatesReloadTo",
    "PropagatesStopTo",
    "ReloadPropagatedFrom",
    "Requires",
    "RequiresMountsFor",
    "RequiresOverridable",
    "Requisite",
    "RequisiteOverridable",
    "StopPropagatedFrom",
    "Upholds",
    "Wants",
    "WantsMountsFor",
];

/// Returns `name` and the other name, older or newer, of the same list. Returns `name` twice if the
/// list has only this name.
pub(crate) fn names_of_list<'a>(section: &str, name: &'a str) -> [&'a str; 2] {
    if !matches!(section, "Mount" | "Service" | "Socket" | "Swap" | "Unit") {
        return [name; 2];
    }
    let other = OLD_NAMES.iter().find_map(|(old, new)| match name {
        _ if name == *old => Some(*new),
        _ if name == *new => Some(*old),
        _ => None,
    });
    [name, other.unwrap_or(name)]
}

/// Returns `true` if an empty value of the option `empty` resets the values of the option `other`
/// in the same section.
pub(crate) fn resets(section: &str, empty: &str, other: &str) -> bool {
    match section {
        "Unit" if NEVER_RESET.contains(&other) => false,
        "Service" if other == "Sockets" => false,
        "Install" if other == "Also" => false,
        _ if empty == other => true,
        "Unit" => ["Condition", "Assert"]
            .iter()
            .any(|start| empty.starts_with(start) && other.starts_with(start)),
        "Mount" | "Path" | "Service" | "Socket" | "Swap" | "Timer" => {
            SHARED_LISTS.iter().any(|names| names.contains(&empty) && names.contains(&other))
        }
        _ => false,
    }
}

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

    /// Returns the value of the last option with this name below the header, or `None` if that
    /// value is empty.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let last = self.options().rfind(|option| option.name() == name);
        last.map(OptionView::value).filter(|value| !value.is_empty())
    }
}
