//! Asks for many things side by side, and keeps their answers in the order of the questions.
//!
//! What a cluster is asked for one by one takes as long as all the ways there and back together,
//! and reaches the machines in as many small pieces.

use std::cell::Cell;
use std::future::ready;

use futures_util::{StreamExt as _, stream};

use super::error::CliError;

/// How many questions may have no answer yet: enough for a daemon to write what they ask together,
/// and few beside what it answers at a time.
const AT_ONCE: usize = 64;

/// Asks everything.
pub(crate) async fn at_once<T, F>(questions: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T>,
{
    stream::iter(questions).buffered(AT_ONCE).collect().await
}

/// Asks on until one is refused. What is under way then is waited for, so that it is known what was
/// done: there is an answer to each question that was asked, and none to those after them.
pub(crate) async fn until_refused<T, F>(
    questions: impl IntoIterator<Item = F>,
) -> Vec<Result<T, CliError>>
where
    F: Future<Output = Result<T, CliError>>,
{
    let refused = Cell::new(false);
    let asked = stream::iter(questions).take_while(|_| ready(!refused.get()));
    let answers = asked.map(async |question| {
        let answer = question.await;
        refused.set(refused.get() || answer.is_err());
        answer
    });
    answers.buffered(AT_ONCE).collect().await
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn answers_are_in_the_order_of_the_questions_and_not_too_many_are_asked_at_a_time() {
        let (now, most) = (Cell::new(0), Cell::new(0));
        let (now, most) = (&now, &most);
        let questions = (0..100).map(|number| async move {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            for _ in 0..100 - number {
                yield_now().await;
            }
            now.set(now.get() - 1);
            number
        });
        assert!(at_once(questions).await.into_iter().eq(0..100));
        assert_eq!(most.get(), AT_ONCE);
    }

    #[tokio::test]
    async fn after_a_refusal_nothing_more_is_asked_and_what_was_is_answered() {
        let asked = Cell::new(0);
        let asked = &asked;
        let questions = (0..100).map(|number| async move {
            asked.set(asked.get() + 1);
            if number == 20 {
                return Err(CliError::failed("no"));
            }
            yield_now().await;
            Ok(number)
        });
        let answers = until_refused(questions).await;
        assert_eq!(answers.len(), asked.get(), "each one that was asked is answered");
        assert!((21..=20 + AT_ONCE).contains(&answers.len()), "{}", answers.len());
        assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
    }
}
