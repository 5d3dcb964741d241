//! Sets limits and nice levels as close to the requested value as permitted, like systemd.
//!
//! All code of this module runs in the child before the exec, so it may only make system calls.

use rustix::io::{Errno, Result};
use rustix::process::{
    Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit,
};

/// Nice level that needs no permission.
const LEAST_URGENT: i32 = 19;

/// Sets a limit of this process, or the highest permitted value.
pub(crate) fn set_limit(resource: Resource, wanted: Rlimit) -> Result<()> {
    match setrlimit(resource, wanted) {
        Err(Errno::PERM) => {}
        done => return done,
    }
    let present = getrlimit(resource);
    // Without a hard limit, the refusal has another cause.
    let most = present.maximum.ok_or(Errno::PERM)?;
    let closest = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit { current: closest(wanted.current), maximum: closest(wanted.maximum) };
    if limit == present { Ok(()) } else { setrlimit(resource, limit) }
}

/// Sets the nice level of this process, or the most urgent permitted one.
pub(crate) fn set_nice(wanted: i32) -> Result<()> {
    let refused = match setpriority_process(None, wanted) {
        Err(refused @ (Errno::PERM | Errno::ACCESS)) => refused,
        done => return done,
    };
    let present = getpriority_process(None)?;
    if wanted > present {
        // A less urgent level needs no permission, so the refusal has another cause.
        return Err(refused);
    }
    let most_urgent = most_urgent(getrlimit(Resource::Nice).current);
    if present > most_urgent { setpriority_process(None, most_urgent) } else { Ok(()) }
}

/// Returns the most urgent nice level that a limit permits.
fn most_urgent(limit: Option<u64>) -> i32 {
    let steps = limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(i32::MAX);
    LEAST_URGENT + 1 - steps.clamp(1, 40)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_res_uid;

    use super::*;

    /// Nice levels belong to the thread, which drops its privileges alone.
    #[test]
    fn nice_level_is_as_close_as_permitted() {
        let before = getrlimit(Resource::Nice);
        // If it cannot be raised, the present limit counts.
        let maximum = before.maximum.map(|most| most.max(22));
        let raised = setrlimit(Resource::Nice, Rlimit { current: Some(22), maximum });
        let levels = std::thread::spawn(|| {
            if geteuid().is_root() {
                let nobody_user = Uid::from_raw(65534);
                set_thread_res_uid(nobody_user, nobody_user, nobody_user)
                    .expect("root may use any account");
            }
            let allowed = most_urgent(getrlimit(Resource::Nice).current);
            let present = getpriority_process(None).expect("it has one");
            let set = set_nice(-5).and_then(|()| getpriority_process(None));
            (set, (-5).max(present.min(allowed)))
        });
        let (set, closest) = levels.join().expect("it ends");
        if raised.is_ok() {
            setrlimit(Resource::Nice, before).expect("it was so before");
        }
        assert_eq!(set, Ok(closest));
    }

    #[test]
    fn nice_limit_maps_to_level() {
        let levels = [Some(0), Some(1), Some(20), Some(40), Some(99), None].map(most_urgent);
        assert_eq!(levels, [19, 19, 0, -20, -20, -20]);
    }
}
