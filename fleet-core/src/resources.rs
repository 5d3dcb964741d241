//! Resources that machines offer and units reserve: processor time, memory and disk.

use std::fmt;
use std::ops::{Add, Index, IndexMut};

use fleet_unitfile::values::{Size, parse_permyriad, parse_size};

/// A kind of resource that machines offer and units reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Processor time, in thousandths of a core.
    Cpu,
    /// Memory, in bytes.
    Memory,
    /// Disk, in bytes.
    Disk,
}

/// An amount of each resource.
///
/// Machines offer amounts and units reserve them. The amounts are only compared with each other;
/// the actual use of the resources is not measured.
///
/// ```
/// use fleet_core::{Resource, Resources};
///
/// let offered = Resources { cpu: 4000, memory: 8 << 30, disk: 0 };
/// let wanted = Resources { cpu: 1500, memory: 512 << 20, disk: 0 };
/// assert!(wanted.fits_in(offered));
/// assert_eq!(wanted.to_string(), "cpu 1.5, memory 512M");
///
/// let free = offered.saturating_sub(wanted).saturating_sub(wanted);
/// assert_eq!(wanted.first_over(free), Some(Resource::Cpu));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources {
    /// Processor time, in thousandths of a core.
    pub cpu: u64,
    /// Memory, in bytes.
    pub memory: u64,
    /// Disk, in bytes.
    pub disk: u64,
}

impl Resources {
    /// Zero of every resource.
    pub const ZERO: Self = Self { cpu: 0, memory: 0, disk: 0 };

    /// Returns `true` if every amount is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Adds the amounts, saturating at the numeric bounds.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Subtracts the amounts, saturating at zero.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// Returns `true` if no amount exceeds the other's.
    #[must_use]
    pub fn fits_in(self, other: Self) -> bool {
        self.first_over(other).is_none()
    }

    /// Returns the first resource, in the order of [`Resource::ALL`], of which `self` has more than
    /// `other`. Returns `None` if there is none.
    #[must_use]
    pub fn first_over(self, other: Self) -> Option<Resource> {
        Resource::ALL.into_iter().find(|resource| self[*resource] > other[*resource])
    }

    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu: combine(self.cpu, other.cpu),
            memory: combine(self.memory, other.memory),
            disk: combine(self.disk, other.disk),
        }
    }
}

/// Adds like [`saturating_add`](Resources::saturating_add).
impl Add for Resources {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl Index<Resource> for Resources {
    type Output = u64;

    fn index(&self, resource: Resource) -> &u64 {
        match resource {
            Resource::Cpu => &self.cpu,
            Resource::Memory => &self.memory,
            Resource::Disk => &self.disk,
        }
    }
}

impl IndexMut<Resource> for Resources {
    fn index_mut(&mut self, resource: Resource) -> &mut u64 {
        match resource {
            Resource::Cpu => &mut self.cpu,
            Resource::Memory => &mut self.memory,
            Resource::Disk => &mut self.disk,
        }
    }
}

/// Writes each nonzero amount, or `nothing`.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = Resource::ALL.into_iter().filter(|resource| self[*resource] > 0);
        let parts: Vec<String> = some
            .map(|resource| format!("{resource} {}", resource.format(self[resource])))
            .collect();
        f.pad(if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }.as_str())
    }
}

impl Resource {
    /// All resources, in the order of comparison and display.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Disk];

    /// Returns the name: `cpu`, `memory` or `disk`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }

    /// Returns the resource of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.as_str() == name)
    }

    /// Formats an amount in a readable form that [`parse`](Self::parse) accepts: `1.5` cores,
    /// `512M`.
    #[must_use]
    pub fn format(self, amount: u64) -> String {
        match self {
            Self::Cpu => format_thousandths(amount),
            Self::Memory | Self::Disk => Size::Bytes(amount).to_string(),
        }
    }

    /// Parses an amount. Processor time is written as cores (`1.5`) or as a percentage of one core
    /// (`150%`). Other resources are written in bytes with the suffixes of systemd (`512M`).
    ///
    /// ```
    /// use fleet_core::Resource;
    ///
    /// assert_eq!(Resource::Cpu.parse("1.5")?, 1500);
    /// assert_eq!(Resource::Cpu.parse("150%")?, 1500);
    /// assert_eq!(Resource::Disk.parse("10G")?, 10 << 30);
    /// # Ok::<(), fleet_core::resources::AmountError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error for a text that is not an amount of the resource.
    pub fn parse(self, text: &str) -> Result<u64, AmountError> {
        let amount = match self {
            Self::Cpu => parse_cores(text),
            Self::Memory | Self::Disk => match parse_size(text) {
                Ok(Size::Bytes(bytes)) => Some(bytes),
                _ => None,
            },
        };
        amount.ok_or_else(|| AmountError { resource: self, text: text.to_owned() })
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Error for a text that is not an amount of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AmountError {
    /// The resource.
    pub resource: Resource,
    /// The text.
    pub text: String,
}

impl AmountError {
    /// Returns how to correct the text.
    #[must_use]
    pub fn help(&self) -> String {
        if let Some(suggestion) = self.suggestion() {
            return format!("write {suggestion}");
        }
        match self.resource {
            Resource::Cpu => "write cores down to thousandths, as in 1.5, or 150%".to_owned(),
            Resource::Memory | Resource::Disk => "write bytes, as in 512M or 10G".to_owned(),
        }
    }

    /// Returns the amount that was probably meant. Other programs write `500m` for half a core, and
    /// `1Gi` or `1GB` for systemd's `1G`. Returns `None` for any other text.
    fn suggestion(&self) -> Option<String> {
        if self.resource == Resource::Cpu {
            return self.text.strip_suffix('m')?.parse().ok().map(format_thousandths);
        }
        let short = self.text.trim_end_matches(['b', 'B']).trim_end_matches('i');
        let short = short.to_ascii_uppercase();
        (short != self.text && self.resource.parse(&short).is_ok()).then_some(short)
    }
}

impl std::error::Error for AmountError {}

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.resource {
            Resource::Cpu => "processor time",
            other => other.as_str(),
        };
        write!(f, "{:?} is not an amount of {of}", self.text)
    }
}

/// Parses processor time into thousandths of a core. Accepts cores with at most three decimals
/// (`1.5`), or a percentage of one core (`150%`) that is a whole number of thousandths.
fn parse_cores(text: &str) -> Option<u64> {
    if text.ends_with(['%', '‰', '‱']) {
        let permyriad = parse_permyriad(text).ok()?;
        return permyriad.is_multiple_of(10).then(|| u64::from(permyriad / 10));
    }
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let thousandths: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(thousandths)
}

fn format_thousandths(amount: u64) -> String {
    let (whole, rest) = (amount / 1000, amount % 1000);
    let decimals = format!("{rest:03}");
    match decimals.trim_end_matches('0') {
        "" => whole.to_string(),
        decimals => format!("{whole}.{decimals}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_parse_or_fail() {
        let cases = [
            (Resource::Cpu, "1.5", Some(1500)),
            (Resource::Cpu, "0.001", Some(1)),
            (Resource::Cpu, "0", Some(0)),
            (Resource::Cpu, "150%", Some(1500)),
            (Resource::Cpu, "12.5%", Some(125)),
            (Resource::Cpu, "12.34%", None),
            (Resource::Cpu, "1.0005", None),
            (Resource::Cpu, "1.", None),
            (Resource::Cpu, ".5", None),
            (Resource::Cpu, "-1", None),
            (Resource::Cpu, "+1", None),
            (Resource::Cpu, "", None),
            (Resource::Cpu, "18446744073709551615", None),
            (Resource::Cpu, "18446744073709551.615", Some(u64::MAX)),
            (Resource::Cpu, "18446744073709551.616", None),
            (Resource::Memory, "512M", Some(512 << 20)),
            (Resource::Disk, "1G 512M", Some(1536 << 20)),
            (Resource::Disk, "0", Some(0)),
            (Resource::Disk, "50%", None),
            (Resource::Disk, "infinity", None),
            (Resource::Disk, "-1", None),
        ];
        for (resource, text, expected) in cases {
            assert_eq!(resource.parse(text).ok(), expected, "{resource} {text:?}");
        }
    }

    #[test]
    fn help_suggests_amounts_written_as_in_other_programs() {
        let cases = [
            (Resource::Cpu, "500m", "write 0.5"),
            (Resource::Cpu, "two", "write cores down to thousandths, as in 1.5, or 150%"),
            (Resource::Memory, "1Gi", "write 1G"),
            (Resource::Memory, "512MB", "write 512M"),
            (Resource::Memory, "512m", "write 512M"),
            (Resource::Disk, "50%", "write bytes, as in 512M or 10G"),
        ];
        for (resource, text, expected) in cases {
            assert_eq!(resource.parse(text).unwrap_err().help(), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn formatted_amount_parses_back(amount: u64) {
            for resource in Resource::ALL {
                proptest::prop_assert_eq!(resource.parse(&resource.format(amount)), Ok(amount));
            }
        }

        #[test]
        fn arithmetic_applies_to_each_resource(
            one: [u64; 3],
            other: [u64; 3],
        ) {
            let of = |[cpu, memory, disk]: [u64; 3]| Resources { cpu, memory, disk };
            let (sum, rest) =
                (of(one).saturating_add(of(other)), of(one).saturating_sub(of(other)));
            for (at, resource) in Resource::ALL.into_iter().enumerate() {
                proptest::prop_assert_eq!(sum[resource], one[at].saturating_add(other[at]));
                proptest::prop_assert_eq!(rest[resource], one[at].saturating_sub(other[at]));
            }
            let fits = (0..3).all(|at| one[at] <= other[at]);
            proptest::prop_assert_eq!(of(one).fits_in(of(other)), fits);
        }
    }

    #[test]
    fn resources_display() {
        assert_eq!(Resources::ZERO.to_string(), "nothing");
        let all = Resources { cpu: 250, memory: 3 << 30, disk: 1000 };
        assert_eq!(all.to_string(), "cpu 0.25, memory 3G, disk 1000");
        assert_eq!(
            Resource::ALL.map(|it| Resource::from_name(it.as_str())),
            Resource::ALL.map(Some)
        );
    }
}
