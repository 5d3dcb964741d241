//! The hypervisor, as the processor reports it.

/// Returns the name by which a hypervisor introduces itself, such as `KVMKVMKVM`. `None` means that
/// there is none, or that this architecture has no way to ask.
#[cfg(target_arch = "x86_64")]
pub(crate) fn hypervisor() -> Option<String> {
    /// The bit of `ecx` that only hypervisors set.
    const IS_VIRTUAL: u32 = 1 << 31;
    if cpuid(1).ecx & IS_VIRTUAL == 0 {
        return None;
    }
    let name = cpuid(0x4000_0000);
    let bytes = [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes).concat();
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn hypervisor() -> Option<String> {
    None
}

#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "newer compilers declare the instruction as safe")]
#[expect(unsafe_code, reason = "older compilers declare the instruction as unsafe")]
fn cpuid(leaf: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every processor of this architecture has the instruction, which only reads.
    unsafe { std::arch::x86_64::__cpuid(leaf) }
}
