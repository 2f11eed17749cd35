//! The result section in front of some reply bodies (section 3.9).
//!
//! ```text
//! 0 count u32 | 4 count times: index u32 (0), result u32 | payload, only when count is 0
//! ```

use crate::codec::Reader;
use crate::error_code::ErrorCode;
use thiserror::Error;

/// The section of a success: no results.
pub const RESULT_SUCCESS: [u8; 4] = [0; 4];

/// Why a reply body has no payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ResultFault {
    /// The command was refused with this error number.
    #[error("refused: {}", ErrorCode::from_wire(*.0))]
    Rejected(u32),
    /// The section is not one.
    #[error("the result section is malformed")]
    Malformed,
}

/// Appends the section of a refusal.
pub fn write_rejection(code: ErrorCode, out: &mut Vec<u8>) {
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&code.number().to_le_bytes());
}

/// Takes the section off a body and gives the payload.
///
/// # Errors
/// [`ResultFault::Rejected`] with the first result when there is one, [`ResultFault::Malformed`]
/// when the section does not decode.
pub fn split_result(body: &[u8]) -> Result<&[u8], ResultFault> {
    let mut reader = Reader::new(body);
    let count = reader.u32("result count").map_err(|_| ResultFault::Malformed)?;
    if count == 0 {
        return Ok(reader.rest());
    }
    reader.count("results", count, 8).map_err(|_| ResultFault::Malformed)?;
    reader.u32("result index").map_err(|_| ResultFault::Malformed)?;
    match reader.u32("result") {
        Ok(0) | Err(_) => Err(ResultFault::Malformed),
        Ok(result) => Err(ResultFault::Rejected(result)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_reads_back_and_a_success_gives_its_payload() {
        let mut body = Vec::new();
        write_rejection(ErrorCode::StreamNameAlreadyExists, &mut body);
        assert_eq!(body.len(), 12);
        assert_eq!(split_result(&body), Err(ResultFault::Rejected(1012)));
        assert_eq!(split_result(&[0, 0, 0, 0, 7]), Ok(&[7][..]));
        assert_eq!(split_result(&RESULT_SUCCESS), Ok(&[][..]));
    }

    #[test]
    fn lying_counts_and_zero_results_are_malformed() {
        for body in [&[][..], &[1], &[1, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0], &[255; 12], &[255; 4]]
        {
            assert_eq!(split_result(body), Err(ResultFault::Malformed), "{body:?}");
        }
        let zero = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(split_result(&zero), Err(ResultFault::Malformed));
    }
}
