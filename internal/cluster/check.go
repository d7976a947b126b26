package cluster

// CheckState is the result of one check.
type CheckState string

// The results of a check.
const (
	CheckOK   CheckState = "ok"
	CheckWarn CheckState = "warn" // it works, but may cause trouble, or will be different afterwards
	CheckFail CheckState = "fail" // the node could not do its part, or what is asked for cannot be done
	// CheckUnknown: it could not be looked at.
	CheckUnknown CheckState = "unknown"
)

// Check is the result for one subject: of doctor, before an adoption, or before a server is followed.
type Check struct {
	Subject string     `json:"subject"`
	State   CheckState `json:"state"`
	// Found says in one line what was found. Do says what to do about it; "" = nothing.
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
	// Figures are the measured values, with the unit last in each name.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// Worst returns the worst state of checks. CheckUnknown counts as CheckOK.
func Worst(checks []Check) CheckState {
	worst := CheckOK
	for _, c := range checks {
		if c.State == CheckFail || c.State == CheckWarn && worst == CheckOK {
			worst = c.State
		}
	}
	return worst
}

// Failed names the subjects whose check failed.
func Failed(checks []Check) (subjects []string) {
	for _, c := range checks {
		if c.State == CheckFail {
			subjects = append(subjects, c.Subject)
		}
	}
	return subjects
}
