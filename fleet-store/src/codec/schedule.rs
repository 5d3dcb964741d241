//! Encoding of schedules.

use fleet_core::schedule::{
    HistoryEntry, OmissionReason, RunEnd, RunId, RunPhase, ScheduleRecord, ScheduleRequests,
    ScheduleState, ScheduledRun,
};
use fleet_core::{Generation, Timestamp};
use serde::{Deserialize, Serialize};

use super::job::WireOutcome;
use super::{CodecError, FORMAT, decode, encode, wire};

/// Times are in milliseconds since 1970 (UTC).
#[derive(Serialize, Deserialize)]
struct WireSchedule {
    v: u32,
    event: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    paused: bool,
    /// Whether elapses since `decided_until` are skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_paused: bool,
    /// Number of requests to run now, and the last one that was handled.
    run_now: (u64, u64),
    decided_until: u64,
    runs: Vec<WireRun>,
    history: Vec<WireEntry>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireRunId {
    Elapse(u64),
    Manual(u64),
}

#[derive(Serialize, Deserialize)]
struct WireRun {
    id: WireRunId,
    recorded: u64,
    phase: WirePhase,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WirePhase {
    Recorded,
    Started,
    Stopping,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireEntry {
    Run {
        id: WireRunId,
        recorded: u64,
        ended: u64,
        result: WireRunEnd,
    },
    Omitted {
        first: WireRunId,
        last: WireRunId,
        count: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        or_more: bool,
        reason: WireReason,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireRunEnd {
    Ended(WireOutcome),
    Replaced,
    Removed,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireReason {
    Missed,
    Paused,
    Unfinished,
    TooManyRuns,
    Replaced,
    NameTaken,
}

wire!(WireSchedule);

pub(crate) fn encode_schedule(record: &ScheduleRecord) -> Vec<u8> {
    let ScheduleState { decided_until, is_paused, run_now, runs, history } = &record.state;
    encode(&WireSchedule {
        v: FORMAT,
        event: record.event.clone(),
        paused: record.requests.paused,
        is_paused: *is_paused,
        run_now: (record.requests.run_now.0, run_now.0),
        decided_until: decided_until.as_millis(),
        runs: runs.iter().map(WireRun::from).collect(),
        history: history.iter().map(WireEntry::from).collect(),
    })
}

pub(crate) fn decode_schedule(bytes: &[u8]) -> Result<ScheduleRecord, CodecError> {
    let wire: WireSchedule = decode(bytes)?;
    let (requested, handled) = wire.run_now;
    let requests = ScheduleRequests { paused: wire.paused, run_now: Generation(requested) };
    let state = ScheduleState {
        is_paused: wire.is_paused,
        decided_until: Timestamp::from_millis(wire.decided_until),
        run_now: Generation(handled),
        runs: wire.runs.into_iter().map(ScheduledRun::from).collect(),
        history: wire.history.into_iter().map(HistoryEntry::from).collect(),
    };
    Ok(ScheduleRecord { event: wire.event, requests, state })
}

impl From<RunId> for WireRunId {
    fn from(id: RunId) -> Self {
        match id {
            RunId::Elapse(at) => Self::Elapse(at.as_millis()),
            RunId::Manual(request) => Self::Manual(request.0),
        }
    }
}

impl From<WireRunId> for RunId {
    fn from(id: WireRunId) -> Self {
        match id {
            WireRunId::Elapse(at) => Self::Elapse(Timestamp::from_millis(at)),
            WireRunId::Manual(request) => Self::Manual(Generation(request)),
        }
    }
}

impl From<&ScheduledRun> for WireRun {
    fn from(run: &ScheduledRun) -> Self {
        let phase = match run.phase {
            RunPhase::Recorded => WirePhase::Recorded,
            RunPhase::Started => WirePhase::Started,
            RunPhase::Stopping => WirePhase::Stopping,
        };
        Self { id: run.id.into(), recorded: run.recorded.as_millis(), phase }
    }
}

impl From<WireRun> for ScheduledRun {
    fn from(run: WireRun) -> Self {
        let phase = match run.phase {
            WirePhase::Recorded => RunPhase::Recorded,
            WirePhase::Started => RunPhase::Started,
            WirePhase::Stopping => RunPhase::Stopping,
        };
        let recorded = Timestamp::from_millis(run.recorded);
        Self { id: run.id.into(), recorded, phase }
    }
}

impl From<&HistoryEntry> for WireEntry {
    fn from(entry: &HistoryEntry) -> Self {
        match entry {
            HistoryEntry::Run { id, recorded, ended, result } => Self::Run {
                id: (*id).into(),
                recorded: recorded.as_millis(),
                ended: ended.as_millis(),
                result: match result {
                    RunEnd::Ended(outcome) => WireRunEnd::Ended((*outcome).into()),
                    RunEnd::Replaced => WireRunEnd::Replaced,
                    RunEnd::Removed => WireRunEnd::Removed,
                },
            },
            HistoryEntry::Omitted { first, last, count, or_more, reason } => Self::Omitted {
                first: (*first).into(),
                last: (*last).into(),
                count: *count,
                or_more: *or_more,
                reason: match reason {
                    OmissionReason::Missed => WireReason::Missed,
                    OmissionReason::Paused => WireReason::Paused,
                    OmissionReason::Unfinished => WireReason::Unfinished,
                    OmissionReason::TooManyRuns => WireReason::TooManyRuns,
                    OmissionReason::Replaced => WireReason::Replaced,
                    OmissionReason::NameTaken => WireReason::NameTaken,
                },
            },
        }
    }
}

impl From<WireEntry> for HistoryEntry {
    fn from(entry: WireEntry) -> Self {
        match entry {
            WireEntry::Run { id, recorded, ended, result } => Self::Run {
                id: id.into(),
                recorded: Timestamp::from_millis(recorded),
                ended: Timestamp::from_millis(ended),
                result: match result {
                    WireRunEnd::Ended(outcome) => RunEnd::Ended(outcome.into()),
                    WireRunEnd::Replaced => RunEnd::Replaced,
                    WireRunEnd::Removed => RunEnd::Removed,
                },
            },
            WireEntry::Omitted { first, last, count, or_more, reason } => Self::Omitted {
                first: first.into(),
                last: last.into(),
                count,
                or_more,
                reason: match reason {
                    WireReason::Missed => OmissionReason::Missed,
                    WireReason::Paused => OmissionReason::Paused,
                    WireReason::Unfinished => OmissionReason::Unfinished,
                    WireReason::TooManyRuns => OmissionReason::TooManyRuns,
                    WireReason::Replaced => OmissionReason::Replaced,
                    WireReason::NameTaken => OmissionReason::NameTaken,
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::job::JobOutcome;

    use super::*;

    #[test]
    fn schedules_read_back() {
        let at = Timestamp::from_millis;
        let ids = [RunId::Elapse(at(1000)), RunId::Manual(Generation(3))];
        let mut state = ScheduleState::new(at(5));
        (state.run_now, state.is_paused) = (Generation(3), true);
        for phase in [RunPhase::Recorded, RunPhase::Started, RunPhase::Stopping] {
            state.runs.push(ScheduledRun { id: ids[0], recorded: at(1), phase });
        }
        for result in
            [RunEnd::Ended(JobOutcome::DeadlineExceeded), RunEnd::Replaced, RunEnd::Removed]
        {
            let entry = HistoryEntry::Run { id: ids[1], recorded: at(1), ended: at(2), result };
            state.history.push_back(entry);
        }
        for reason in [
            OmissionReason::Missed,
            OmissionReason::Paused,
            OmissionReason::Unfinished,
            OmissionReason::TooManyRuns,
            OmissionReason::Replaced,
            OmissionReason::NameTaken,
        ] {
            let [first, last] = ids;
            let entry = HistoryEntry::Omitted { first, last, count: 2, or_more: true, reason };
            state.history.push_back(entry);
        }
        let requests = ScheduleRequests { paused: true, run_now: Generation(4) };
        let record = ScheduleRecord { event: "*:0/5".to_owned(), requests, state };
        let read = decode_schedule(&encode_schedule(&record)).expect("it was just encoded");
        assert_eq!(read, record);
    }
}
