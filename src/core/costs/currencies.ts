/**
 * Currencies and funds in use by ISO 4217, list one, as of amendment 180 (1 January 2026). Codes without minor units
 * (metals, bond units, XDR, XSU, XUA, XTS, XXX) cannot be billed. A table of its own, because Intl has CLDR's digits,
 * which differ for currencies whose small coins are out of use.
 */
export interface Currency {
  /** "EUR" */
  readonly code: string;
  readonly name: string;
  /** The local symbol; the code if there is none. Several currencies share "$". */
  readonly symbol: string;
  /** Decimal places of an amount. */
  readonly minorUnits: number;
}

/** Numbers of minor units, each with its currencies: code, symbol, name. */
const byMinorUnits: readonly (readonly [number, string])[] = [
  [
    0,
    `BIF FBu Burundi Franc
CLP $ Chilean Peso
DJF Fdj Djibouti Franc
GNF FG Guinean Franc
ISK kr Iceland Krona
JPY ¥ Yen
KMF CF Comorian Franc
KRW ₩ Won
PYG ₲ Guarani
RWF RF Rwanda Franc
UGX USh Uganda Shilling
UYI UYI Uruguay Peso en Unidades Indexadas (UI)
VND ₫ Dong
VUV VT Vatu
XAF FCFA CFA Franc BEAC
XOF CFA CFA Franc BCEAO
XPF ₣ CFP Franc`,
  ],
  [
    2,
    `AED AED UAE Dirham
AFN ؋ Afghani
ALL L Lek
AMD ֏ Armenian Dram
AOA Kz Kwanza
ARS $ Argentine Peso
AUD $ Australian Dollar
AWG ƒ Aruban Florin
AZN ₼ Azerbaijan Manat
BAM KM Convertible Mark
BBD $ Barbados Dollar
BDT ৳ Taka
BMD $ Bermudian Dollar
BND $ Brunei Dollar
BOB Bs Boliviano
BOV BOV Mvdol
BRL R$ Brazilian Real
BSD $ Bahamian Dollar
BTN Nu. Ngultrum
BWP P Pula
BYN Br Belarusian Ruble
BZD $ Belize Dollar
CAD $ Canadian Dollar
CDF FC Congolese Franc
CHE CHE WIR Euro
CHF CHF Swiss Franc
CHW CHW WIR Franc
CNY ¥ Yuan Renminbi
COP $ Colombian Peso
COU COU Unidad de Valor Real
CRC ₡ Costa Rican Colon
CUP $ Cuban Peso
CVE $ Cabo Verde Escudo
CZK Kč Czech Koruna
DKK kr Danish Krone
DOP $ Dominican Peso
DZD DA Algerian Dinar
EGP £ Egyptian Pound
ERN Nfk Nakfa
ETB Br Ethiopian Birr
EUR € Euro
FJD $ Fiji Dollar
FKP £ Falkland Islands Pound
GBP £ Pound Sterling
GEL ₾ Lari
GHS ₵ Ghana Cedi
GIP £ Gibraltar Pound
GMD D Dalasi
GTQ Q Quetzal
GYD $ Guyana Dollar
HKD $ Hong Kong Dollar
HNL L Lempira
HTG G Gourde
HUF Ft Forint
IDR Rp Rupiah
ILS ₪ New Israeli Sheqel
INR ₹ Indian Rupee
IRR ﷼ Iranian Rial
JMD $ Jamaican Dollar
KES KSh Kenyan Shilling
KGS ⃀ Som
KHR ៛ Riel
KPW ₩ North Korean Won
KYD $ Cayman Islands Dollar
KZT ₸ Tenge
LAK ₭ Lao Kip
LBP £ Lebanese Pound
LKR Rs Sri Lanka Rupee
LRD $ Liberian Dollar
LSL L Loti
MAD DH Moroccan Dirham
MDL L Moldovan Leu
MGA Ar Malagasy Ariary
MKD ден Denar
MMK K Kyat
MNT ₮ Tugrik
MOP MOP$ Pataca
MRU UM Ouguiya
MUR ₨ Mauritius Rupee
MVR Rf Rufiyaa
MWK MK Malawi Kwacha
MXN $ Mexican Peso
MXV MXV Mexican Unidad de Inversion (UDI)
MYR RM Malaysian Ringgit
MZN MT Mozambique Metical
NAD $ Namibia Dollar
NGN ₦ Naira
NIO C$ Cordoba Oro
NOK kr Norwegian Krone
NPR ₨ Nepalese Rupee
NZD $ New Zealand Dollar
PAB B/. Balboa
PEN S/ Sol
PGK K Kina
PHP ₱ Philippine Peso
PKR ₨ Pakistan Rupee
PLN zł Zloty
QAR QR Qatari Rial
RON lei Romanian Leu
RSD дин. Serbian Dinar
RUB ₽ Russian Ruble
SAR SAR Saudi Riyal
SBD $ Solomon Islands Dollar
SCR ₨ Seychelles Rupee
SDG SDG Sudanese Pound
SEK kr Swedish Krona
SGD $ Singapore Dollar
SHP £ Saint Helena Pound
SLE Le Leone
SOS Sh Somali Shilling
SRD $ Surinam Dollar
SSP £ South Sudanese Pound
STN Db Dobra
SVC ₡ El Salvador Colon
SYP £ Syrian Pound
SZL E Lilangeni
THB ฿ Baht
TJS SM Somoni
TMT m Turkmenistan New Manat
TOP T$ Pa’anga
TRY ₺ Turkish Lira
TTD $ Trinidad and Tobago Dollar
TWD NT$ New Taiwan Dollar
TZS TSh Tanzanian Shilling
UAH ₴ Hryvnia
USD $ US Dollar
USN USN US Dollar (Next day)
UYU $ Peso Uruguayo
UZS soʻm Uzbekistan Sum
VED Bs.D Bolívar Soberano (digital)
VES Bs.S Bolívar Soberano
WST T Tala
XAD XAD Arab Accounting Dinar
XCD $ East Caribbean Dollar
XCG Cg Caribbean Guilder
YER ﷼ Yemeni Rial
ZAR R Rand
ZMW K Zambian Kwacha
ZWG ZiG Zimbabwe Gold`,
  ],
  [
    3,
    `BHD BD Bahraini Dinar
IQD ID Iraqi Dinar
JOD JD Jordanian Dinar
KWD KD Kuwaiti Dinar
LYD LD Libyan Dinar
OMR RO Rial Omani
TND DT Tunisian Dinar`,
  ],
  [
    4,
    `CLF UF Unidad de Fomento
UYW UP Unidad Previsional`,
  ],
];

/** Sorted by code. */
export const currencies: readonly Currency[] = byMinorUnits
  .flatMap(([minorUnits, table]) => table.split('\n').map((line) => toCurrency(line, minorUnits)))
  .toSorted((a, b) => (a.code < b.code ? -1 : 1));

function toCurrency(line: string, minorUnits: number): Currency {
  const [code = '', symbol = '', ...name] = line.split(' ');
  return { code, name: name.join(' '), symbol, minorUnits };
}

const byCode = new Map(currencies.map((currency) => [currency.code, currency]));

/** Finds a currency by its code in any case. Null if the code is no billable currency. */
export function findCurrency(code: string): Currency | null {
  // Capitals of some other letters are ASCII: the dotless "ı" becomes "I".
  return /^[A-Za-z]{3}$/.test(code) ? (byCode.get(code.toUpperCase()) ?? null) : null;
}

/**
 * Returns the decimal places of an amount.
 * @throws Error if the code is not in the table: stored codes have been checked
 */
export function minorUnitsOf(code: string): number {
  const currency = byCode.get(code);
  if (currency === undefined) throw new Error(`${code} is not a known currency`);
  return currency.minorUnits;
}
