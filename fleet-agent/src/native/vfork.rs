//! Clones a process that shares our memory until its exec.
//!
//! The more memory this daemon uses, the more a copy of its process costs, and the exec discards
//! this copy at once. So the child gets a stack of its own and otherwise uses our memory, while the
//! kernel suspends the calling thread. `vfork` works in the same way, and `posix_spawn` is built on
//! it. No library combines this method with a control group. The method requires assembly code, so
//! it is only used on x86-64. Other architectures use a copy.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ffi::c_void;

/// Size of the child's stack in bytes. The code before the exec uses only a fraction of this size.
const STACK: usize = 64 * 1024;

/// Flags in addition to those for a copy: `CLONE_VM` and `CLONE_VFORK`.
pub(super) const FLAGS: u64 = 0x100 | 0x4000;

/// Whether this architecture is supported.
pub(super) const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// Entry point of the child, with its argument.
pub(super) type ChildMain = unsafe extern "C" fn(*const c_void) -> !;

/// Allocates a stack; its [`stack_range`] goes into the arguments.
pub(super) fn stack() -> Vec<u8> {
    Vec::with_capacity(STACK)
}

/// Returns the lowest address of a stack, and its usable size. The top of the stack is aligned to
/// 16 bytes, as the ABI requires.
pub(super) fn stack_range(stack: &mut Vec<u8>) -> (u64, u64) {
    let (lowest, size) = (stack.as_mut_ptr() as u64, stack.capacity() as u64);
    (lowest, size - (lowest + size) % 16)
}

/// Calls `clone3` with these arguments. Returns a pid, or an error number below zero.
///
/// # Safety
///
/// The arguments are valid for `clone3` with this size. They contain [`FLAGS`] and a stack with its
/// [`stack_range`]. `main` only makes system calls, and ends with an exec or an exit. Everything
/// that `main` uses stays valid and unchanged until this function returns.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "no library begins a process so inside a control group")]
pub(super) unsafe fn clone3(
    request: *const c_void,
    size: usize,
    main: ChildMain,
    argument: *const c_void,
) -> isize {
    let answer: isize;
    // SAFETY: as required above. In the child, where the result is 0, the stack is a different one.
    // So it uses nothing of this function but the two registers, and never returns. Its stack is
    // empty and aligned to 16 bytes, as a call requires.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") nix::libc::SYS_clone3 as isize => answer,
            in("rdi") request,
            in("rsi") size,
            in("r12") main,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

/// Not supported on this architecture.
///
/// # Safety
///
/// It does nothing.
#[cfg(not(target_arch = "x86_64"))]
#[expect(unsafe_code, reason = "it is unsafe elsewhere")]
pub(super) unsafe fn clone3(_: *const c_void, _: usize, _: ChildMain, _: *const c_void) -> isize {
    -(nix::libc::ENOSYS as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_top_is_aligned() {
        for odd in 0..32 {
            let mut stack = Vec::with_capacity(STACK + odd);
            let (lowest, size) = stack_range(&mut stack);
            assert_eq!((lowest, (lowest + size) % 16), (stack.as_ptr() as u64, 0));
            let bytes = stack.capacity() as u64;
            assert!((bytes - 15..=bytes).contains(&size), "{size} of {bytes}");
        }
    }
}
